"""Couriers: what carries a letter to somebody outside, by web, mail, Slack or Apprise.

Comes in: a notifier's description and a letter; or, for the teller, alerts that are due.
Goes out: one request or mail, and a sentence that says what it came to, without secrets.
Who runs it: children of workers, for notifiers that are callbacks; the teller's thread in every
scheduler and triggerer, for alerts; ``manage.py notifiers test``.
What never happens here: a decision about runs or tasks, code of a flow file, a connection to an
address that was not looked at, a redirect followed.
On a crash of the teller its claim runs out, and another one sends the alert: at least once.
"""
