"""Rules: every decision of the product, as pure functions of values.

Comes in: values that a station read from rows (states, counts, definitions, times, ``now``).
Goes out: values that say what to do: a state, a delay, a verdict, a choice, each with its reason.
Who calls: the stations before they write through ``transitions``, and pages that explain.

A rule never reads a row, a file, a setting, a clock or a random number. So the same question has
the same answer in every process and at any later time, an audit can ask it again, and a crash has
nothing to repair here. What depends on time takes ``now``; what must vary takes a key to hash.

The walk through the room, in the order in which a flow meets it:

``definition`` and ``graph`` (what the flow is) -> ``timetable`` (when a run is due) ->
``readiness`` and ``run_outcome`` (what a run's task instances may do, and how the run ends) ->
``capacity`` (which of them start now) -> ``retry`` (when a failed one may start again) ->
``reconcile`` (what an executor event means) -> ``visibility`` (why a row is set aside).

``states`` holds the one table of allowed moves, ``values`` what tasks hand to each other,
``errors`` what the product raises on purpose.
"""
