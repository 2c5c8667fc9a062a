"""The API at ``/api/v2/`` that speaks as Airflow's does, over the same queries and operations.

Comes in: requests of scripts and of the public ``apache-airflow-client``. Goes out: objects of
Airflow's shapes, whose lists of states and kinds are closed: what Daylight knows beyond them stands
under one key, ``daylight``, which clients pass over. Runs in the web process. What never happens
here: reading rows or writing them by another way than pages and ``/api/v1/`` do. What there is, and
what differs, is told in ``docs/airflow_api.md``.
"""
