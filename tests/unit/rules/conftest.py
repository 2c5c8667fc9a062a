"""How many examples properties are tried with."""

from __future__ import annotations

from hypothesis import settings

# No deadline: a busy machine is no fault of the rule. More examples: --hypothesis-profile=thorough.
settings.register_profile("rules", deadline=None)
settings.register_profile("thorough", deadline=None, max_examples=1500)
settings.load_profile("rules")
