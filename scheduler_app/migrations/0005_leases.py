"""Take-overs that tell what they found, inquiries to workers, a number of shards that may change."""

from __future__ import annotations

from django.db import migrations, models

COUNTERS = ("scheduler_take_overs_total", "scheduler_demotions_total")


def first_rows(apps, schema_editor):  # type: ignore[no-untyped-def]  # signature set by Django
    """The number of shards is that of the leases; the counters are at 0; old items are decided."""
    del apps
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("UPDATE installation SET shard_count = (SELECT count(*) FROM lease)")
        cursor.executemany(
            "INSERT INTO counter (name, labels, value) VALUES (%s, '', 0)"
            " ON CONFLICT (name, labels) DO NOTHING",
            [(name,) for name in COUNTERS],
        )
        cursor.execute(
            "UPDATE take_over_item SET decided_at = clock_timestamp(), decision = CASE decision"
            " WHEN 'publish' THEN 'published' WHEN 'wait' THEN 'waiting' WHEN 'adopt' THEN 'adopted'"
            " ELSE 'passed_on' END"
        )


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0004_triggers"),
    ]

    operations = [
        migrations.CreateModel(
            name="Inquiry",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("ask_id", models.UUIDField()),
                ("asked_by", models.UUIDField()),
                ("why", models.CharField(max_length=40)),
                ("worker_job_id", models.UUIDField()),
                ("hostname", models.CharField(max_length=250)),
                ("pid", models.IntegerField()),
                ("asked_at", models.DateTimeField()),
                ("answered_at", models.DateTimeField(null=True)),
                ("holdings", models.JSONField(null=True)),
            ],
            options={
                "db_table": "inquiry",
            },
        ),
        migrations.AddField(
            model_name="installation",
            name="shard_count",
            field=models.IntegerField(db_default=16, default=16),
        ),
        migrations.AddField(
            model_name="takeover",
            name="acquired_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="takeover",
            name="ask_id",
            field=models.UUIDField(null=True),
        ),
        migrations.AddField(
            model_name="takeover",
            name="cause",
            field=models.CharField(default="first", max_length=12),
        ),
        migrations.AddField(
            model_name="takeover",
            name="old_expires_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="takeover",
            name="old_holder",
            field=models.UUIDField(null=True),
        ),
        migrations.AddField(
            model_name="takeover",
            name="old_renewed_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="takeoveritem",
            name="decided_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="takeoveritem",
            name="found",
            field=models.CharField(default="running", max_length=12),
        ),
        migrations.AddField(
            model_name="takeoveritem",
            name="hostname",
            field=models.CharField(max_length=250, null=True),
        ),
        migrations.AddField(
            model_name="takeoveritem",
            name="pid",
            field=models.IntegerField(null=True),
        ),
        migrations.AddField(
            model_name="takeoveritem",
            name="worker_job_id",
            field=models.UUIDField(null=True),
        ),
        migrations.AddIndex(
            model_name="takeover",
            index=models.Index(fields=["shard", "-started_at"], name="take_over_of_shard"),
        ),
        migrations.AddIndex(
            model_name="takeover",
            index=models.Index(
                condition=models.Q(("ended_at__isnull", True)),
                fields=["shard"],
                name="take_over_open",
            ),
        ),
        migrations.AddIndex(
            model_name="takeoveritem",
            index=models.Index(fields=["attempt_id"], name="take_over_item_attempt"),
        ),
        migrations.AddConstraint(
            model_name="takeoveritem",
            constraint=models.UniqueConstraint(
                fields=("take_over", "attempt_id"), name="take_over_item_of_attempt"
            ),
        ),
        migrations.AddIndex(
            model_name="inquiry",
            index=models.Index(fields=["ask_id"], name="inquiry_of_ask"),
        ),
        migrations.AddIndex(
            model_name="inquiry",
            index=models.Index(
                condition=models.Q(("answered_at__isnull", True)),
                fields=["worker_job_id"],
                name="inquiry_unanswered",
            ),
        ),
        migrations.AddIndex(
            model_name="inquiry",
            index=models.Index(fields=["worker_job_id", "-asked_at"], name="inquiry_of_worker"),
        ),
        migrations.RunPython(first_rows, migrations.RunPython.noop),
    ]
