"""What tasks save while they run: checkpoints and their history, progress, pushed values."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('scheduler_app', '0011_clear'),
    ]

    operations = [
        migrations.CreateModel(
            name='Progress',
            fields=[
                ('attempt_id', models.UUIDField(primary_key=True, serialize=False)),
                ('done', models.BigIntegerField()),
                ('total', models.BigIntegerField(null=True)),
                ('note', models.CharField(max_length=250)),
                ('at', models.DateTimeField()),
            ],
            options={
                'db_table': 'progress',
            },
        ),
        migrations.CreateModel(
            name='Checkpoint',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('scope', models.CharField(max_length=10)),
                ('owner', models.CharField(max_length=250)),
                ('key', models.CharField(max_length=250)),
                ('value', models.JSONField()),
                ('version', models.BigIntegerField()),
                ('flow_id', models.CharField(max_length=250)),
                ('ti_id', models.BigIntegerField()),
                ('attempt_id', models.UUIDField()),
                ('try_number', models.IntegerField()),
                ('saved_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'checkpoint',
                'constraints': [models.UniqueConstraint(fields=('scope', 'owner', 'key'), name='checkpoint_unique')],
            },
        ),
        migrations.CreateModel(
            name='PushedValue',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('attempt_id', models.UUIDField()),
                ('ti_id', models.BigIntegerField()),
                ('try_number', models.IntegerField()),
                ('fence', models.BigIntegerField()),
                ('key', models.CharField(max_length=250)),
                ('value', models.JSONField()),
                ('at', models.DateTimeField()),
            ],
            options={
                'db_table': 'pushed_value',
                'indexes': [models.Index(fields=['ti_id', 'key', 'fence'], name='pushed_value_of_ti')],
                'constraints': [models.UniqueConstraint(fields=('attempt_id', 'key'), name='pushed_value_unique')],
            },
        ),
        migrations.CreateModel(
            name='CheckpointSave',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('version', models.BigIntegerField()),
                ('value', models.JSONField()),
                ('ti_id', models.BigIntegerField()),
                ('attempt_id', models.UUIDField()),
                ('try_number', models.IntegerField()),
                ('resume_index', models.IntegerField()),
                ('saved_at', models.DateTimeField()),
                ('checkpoint', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='saves', to='scheduler_app.checkpoint')),
            ],
            options={
                'db_table': 'checkpoint_save',
                'indexes': [models.Index(fields=['ti_id'], name='checkpoint_save_of_ti')],
                'constraints': [models.UniqueConstraint(fields=('checkpoint', 'version'), name='checkpoint_save_unique')],
            },
        ),
        # Room for HOT updates: a running attempt rewrites these rows in place.
        migrations.RunSQL(
            "ALTER TABLE progress SET (fillfactor = 50);"
            "ALTER TABLE checkpoint SET (fillfactor = 50);",
            migrations.RunSQL.noop,
        ),
    ]
