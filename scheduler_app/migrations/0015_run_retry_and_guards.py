"""What run retries, guards of automatic actions and their reviews need to keep."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('scheduler_app', '0014_marks_and_batches'),
    ]

    operations = [
        migrations.CreateModel(
            name='AutomaticAction',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('flow_id', models.CharField(max_length=250)),
                ('kind', models.CharField(max_length=20)),
                ('run_id', models.BigIntegerField()),
                ('run_count', models.IntegerField(default=1)),
                ('task_instance_count', models.IntegerField()),
                ('actor', models.CharField(max_length=250)),
                ('reason', models.TextField(blank=True, default='')),
            ],
            options={
                'db_table': 'automatic_action',
            },
        ),
        migrations.CreateModel(
            name='Guard',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('flow_id', models.CharField(blank=True, default='', max_length=250)),
                ('kind', models.CharField(blank=True, default='', max_length=20)),
                ('is_stopped', models.BooleanField(default=False)),
                ('cooldown_s', models.FloatField(null=True)),
                ('actions_max', models.IntegerField(null=True)),
                ('window_s', models.FloatField(null=True)),
                ('runs_max', models.IntegerField(null=True)),
                ('task_instances_max', models.IntegerField(null=True)),
                ('reason', models.TextField(blank=True, default='')),
                ('actor', models.CharField(max_length=250)),
                ('updated_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'guard',
            },
        ),
        migrations.AddField(
            model_name='review',
            name='action',
            field=models.CharField(db_default='', default='', max_length=20),
        ),
        migrations.AddField(
            model_name='review',
            name='asked_by',
            field=models.CharField(blank=True, db_default='', default='', max_length=250),
        ),
        migrations.AddField(
            model_name='review',
            name='last_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='review',
            name='outcome',
            field=models.JSONField(null=True),
        ),
        migrations.AddField(
            model_name='review',
            name='reason',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AddField(
            model_name='review',
            name='request',
            field=models.JSONField(null=True),
        ),
        migrations.AddField(
            model_name='review',
            name='request_key',
            field=models.CharField(db_default='', default='', max_length=64),
        ),
        migrations.AddField(
            model_name='review',
            name='times',
            field=models.IntegerField(db_default=1, default=1),
        ),
        migrations.AddField(
            model_name='run',
            name='retry_barred',
            field=models.CharField(blank=True, db_default='', default='', max_length=250),
        ),
        migrations.AddField(
            model_name='run',
            name='retry_reason',
            field=models.CharField(blank=True, db_default='', default='', max_length=250),
        ),
        migrations.AddField(
            model_name='runattempt',
            name='outcome_reason',
            field=models.CharField(blank=True, db_default='', default='', max_length=250),
        ),
        migrations.AddField(
            model_name='runattempt',
            name='reason',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('retry_at__isnull', False)), fields=['shard', 'retry_at'], name='run_retry_due'),
        ),
        migrations.AddConstraint(
            model_name='review',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'open')), fields=('action', 'object_kind', 'object_id', 'request_key'), name='review_open_unique'),
        ),
        migrations.AddIndex(
            model_name='automaticaction',
            index=models.Index(fields=['flow_id', 'kind', '-at'], name='automatic_action_recent'),
        ),
        migrations.AddConstraint(
            model_name='guard',
            constraint=models.UniqueConstraint(fields=('flow_id', 'kind'), name='guard_unique'),
        ),
    ]
