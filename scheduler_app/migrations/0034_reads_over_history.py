"""Lists over a long history are read from indexes; what no statement uses is gone."""

from __future__ import annotations

import django.contrib.postgres.indexes
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('scheduler_app', '0033_freezes_of_tasks'),
    ]

    operations = [
        migrations.AddField(
            model_name='taskinstance',
            name='ended_state',
            field=models.GeneratedField(db_persist=True, expression=models.Case(models.When(is_open=False, then=models.F('state'))), output_field=models.CharField(max_length=20, null=True)),
        ),
        migrations.AlterField(
            model_name='run',
            name='flow',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='runs', to='scheduler_app.flow'),
        ),
        migrations.AlterField(
            model_name='run',
            name='version',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='scheduler_app.flowversion'),
        ),
        migrations.AlterField(
            model_name='runattempt',
            name='run',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='attempts_of_run', to='scheduler_app.run'),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['issued_at', 'started_at', 'ended_at'], name='attempt_times', pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(condition=models.Q(('filter_code__isnull', True), ('outcome__in', ['failed', 'deferred', 'rescheduled', 'lost', 'terminated'])), fields=['outcome', 'id'], name='attempt_unwell'),
        ),
        migrations.AddIndex(
            model_name='audit',
            index=models.Index(fields=['flow_id', '-id'], name='audit_of_flow'),
        ),
        migrations.AddIndex(
            model_name='audit',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['at'], name='audit_times', pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='executorevent',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['received_at'], name='executor_event_times', pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='run',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['created_at', 'queued_at', 'started_at', 'ended_at'], name='run_times', pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('filter_code__isnull', True), ('state', 'failed')), fields=['id'], name='run_failed'),
        ),
        migrations.AddIndex(
            model_name='runattempt',
            index=models.Index(condition=models.Q(('filter_code__isnull', False)), fields=['filter_code', 'id'], name='run_attempt_filtered'),
        ),
        migrations.AddIndex(
            model_name='runattempt',
            index=models.Index(models.OrderBy(models.F('filtered_at'), descending=True, nulls_last=True), condition=models.Q(('filter_code__isnull', False)), name='run_attempt_filtered_at'),
        ),
        migrations.AddIndex(
            model_name='taskinstance',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['queued_at', 'started_at', 'ended_at'], name='task_instance_times', pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='taskinstance',
            index=models.Index(condition=models.Q(('ended_state__in', ['failed', 'upstream_failed', 'skipped', 'removed']), ('filter_code__isnull', True)), fields=['ended_state', 'id'], name='task_instance_unwell'),
        ),
    ]
