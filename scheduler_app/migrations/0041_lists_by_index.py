"""Lists over a long history: what few rows have is found, and halves are counted, from indexes alone."""

from __future__ import annotations

import django.contrib.postgres.indexes
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('scheduler_app', '0040_kept_room'),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name='attempt',
            name='attempt_filtered',
        ),
        migrations.RemoveIndex(
            model_name='attempt',
            name='attempt_filtered_at',
        ),
        migrations.RemoveIndex(
            model_name='attempt',
            name='attempt_times',
        ),
        migrations.RemoveIndex(
            model_name='audit',
            name='audit_times',
        ),
        migrations.RemoveIndex(
            model_name='executorevent',
            name='executor_event_filtered',
        ),
        migrations.RemoveIndex(
            model_name='executorevent',
            name='executor_event_filtered_at',
        ),
        migrations.RemoveIndex(
            model_name='executorevent',
            name='executor_event_times',
        ),
        migrations.RemoveIndex(
            model_name='run',
            name='run_filtered',
        ),
        migrations.RemoveIndex(
            model_name='run',
            name='run_filtered_at',
        ),
        migrations.RemoveIndex(
            model_name='run',
            name='run_times',
        ),
        migrations.RemoveIndex(
            model_name='runattempt',
            name='run_attempt_filtered',
        ),
        migrations.RemoveIndex(
            model_name='runattempt',
            name='run_attempt_filtered_at',
        ),
        migrations.RemoveIndex(
            model_name='taskinstance',
            name='task_instance_filtered',
        ),
        migrations.RemoveIndex(
            model_name='taskinstance',
            name='task_instance_filtered_at',
        ),
        migrations.RemoveIndex(
            model_name='taskinstance',
            name='task_instance_times',
        ),
        migrations.AddIndex(
            model_name='alert',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['created_at', 'ended_at', 'state', 'about'], name='alert_times', opclasses=['timestamptz_minmax_ops', 'timestamptz_minmax_ops', 'text_bloom_ops(n_distinct_per_range=16)', 'text_bloom_ops(n_distinct_per_range=16)'], pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(condition=models.Q(('filter_code__isnull', False)), fields=['filter_code', 'id'], include=('run', 'ti', 'shard', 'task_id', 'map_index', 'kind', 'outcome', 'issued_at', 'ended_at'), name='attempt_filtered'),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(models.OrderBy(models.F('filtered_at'), descending=True, nulls_last=True), condition=models.Q(('filter_code__isnull', False)), include=('filter_code',), name='attempt_filtered_at'),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['issued_at', 'started_at', 'ended_at', 'fence', 'shard', 'map_index', 'try_number', 'task_id', 'hostname', 'worker_job_id'], name='attempt_times', opclasses=['timestamptz_minmax_ops', 'timestamptz_minmax_ops', 'timestamptz_minmax_ops', 'int8_minmax_ops', 'int4_minmax_ops', 'int4_minmax_ops', 'int4_minmax_ops', 'text_bloom_ops(n_distinct_per_range=64)', 'text_bloom_ops(n_distinct_per_range=16)', 'uuid_bloom_ops(n_distinct_per_range=64)'], pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(condition=models.Q(('kind', 'callback')), fields=['id'], name='attempt_callbacks'),
        ),
        migrations.AddIndex(
            model_name='audit',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['at', 'actor', 'action'], name='audit_times', opclasses=['timestamptz_minmax_ops', 'text_bloom_ops(n_distinct_per_range=64)', 'text_bloom_ops(n_distinct_per_range=16)'], pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='automaticaction',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['at', 'run_id', 'kind', 'actor'], name='automatic_action_times', opclasses=['timestamptz_minmax_ops', 'int8_minmax_ops', 'text_bloom_ops(n_distinct_per_range=16)', 'text_bloom_ops(n_distinct_per_range=64)'], pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='backfilldate',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['logical_date', 'state'], name='backfill_date_times', opclasses=['timestamptz_minmax_ops', 'text_bloom_ops(n_distinct_per_range=16)'], pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='executorevent',
            index=models.Index(condition=models.Q(('filter_code__isnull', False)), fields=['filter_code', 'id'], include=('run', 'ti_id', 'shard', 'task_id', 'kind', 'verdict', 'received_at'), name='executor_event_filtered'),
        ),
        migrations.AddIndex(
            model_name='executorevent',
            index=models.Index(models.OrderBy(models.F('filtered_at'), descending=True, nulls_last=True), condition=models.Q(('filter_code__isnull', False)), include=('filter_code',), name='executor_event_filtered_at'),
        ),
        migrations.AddIndex(
            model_name='executorevent',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['received_at', 'ti_id', 'shard', 'task_id', 'kind', 'source', 'verdict'], name='executor_event_times', opclasses=['timestamptz_minmax_ops', 'int8_minmax_ops', 'int4_minmax_ops', 'text_bloom_ops(n_distinct_per_range=64)', 'text_bloom_ops(n_distinct_per_range=16)', 'text_bloom_ops(n_distinct_per_range=64)', 'text_bloom_ops(n_distinct_per_range=16)'], pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='freeze',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['created_at', 'ended_at'], name='freeze_times', pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='ghost',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['first_seen_at', 'last_seen_at', 'ended_at', 'ti_id', 'kind', 'task_id', 'hostname', 'worker_job_id'], name='ghost_times', opclasses=['timestamptz_minmax_ops', 'timestamptz_minmax_ops', 'timestamptz_minmax_ops', 'int8_minmax_ops', 'text_bloom_ops(n_distinct_per_range=16)', 'text_bloom_ops(n_distinct_per_range=64)', 'text_bloom_ops(n_distinct_per_range=16)', 'uuid_bloom_ops(n_distinct_per_range=64)'], pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['raised_at', 'resolved_at', 'run_id', 'subject'], name='incident_times', opclasses=['timestamptz_minmax_ops', 'timestamptz_minmax_ops', 'int8_minmax_ops', 'text_bloom_ops(n_distinct_per_range=600)'], pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='inquiry',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['asked_at', 'answered_at', 'why'], name='inquiry_times', opclasses=['timestamptz_minmax_ops', 'timestamptz_minmax_ops', 'text_bloom_ops(n_distinct_per_range=16)'], pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='job',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['started_at', 'state', 'hostname'], name='job_times', opclasses=['timestamptz_minmax_ops', 'text_bloom_ops(n_distinct_per_range=16)', 'text_bloom_ops(n_distinct_per_range=16)'], pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='leaseevent',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['at', 'token', 'kind', 'holder'], name='lease_event_times', opclasses=['timestamptz_minmax_ops', 'int8_minmax_ops', 'text_bloom_ops(n_distinct_per_range=16)', 'uuid_bloom_ops(n_distinct_per_range=64)'], pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='review',
            index=models.Index(fields=['flow_id', '-id'], name='review_of_flow'),
        ),
        migrations.AddIndex(
            model_name='review',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['created_at', 'ended_at', 'object_id', 'guard', 'action', 'asked_by', 'state'], name='review_times', opclasses=['timestamptz_minmax_ops', 'timestamptz_minmax_ops', 'text_bloom_ops(n_distinct_per_range=600)', 'text_bloom_ops(n_distinct_per_range=16)', 'text_bloom_ops(n_distinct_per_range=16)', 'text_bloom_ops(n_distinct_per_range=64)', 'text_bloom_ops(n_distinct_per_range=16)'], pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('filter_code__isnull', False)), fields=['filter_code', 'id'], include=('flow', 'shard', 'run_type', 'state', 'created_at', 'ended_at'), name='run_filtered'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(models.OrderBy(models.F('filtered_at'), descending=True, nulls_last=True), condition=models.Q(('filter_code__isnull', False)), include=('filter_code',), name='run_filtered_at'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['logical_date', 'created_at', 'queued_at', 'started_at', 'ended_at', 'shard', 'run_key', 'version', 'run_type'], name='run_times', opclasses=['timestamptz_minmax_ops', 'timestamptz_minmax_ops', 'timestamptz_minmax_ops', 'timestamptz_minmax_ops', 'timestamptz_minmax_ops', 'int4_minmax_ops', 'text_bloom_ops(n_distinct_per_range=600)', 'int8_bloom_ops(n_distinct_per_range=64)', 'text_bloom_ops(n_distinct_per_range=16)'], pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(models.OrderBy(models.F('ended_at'), descending=True, nulls_last=True), models.OrderBy(models.F('id'), descending=True), condition=models.Q(('filter_code__isnull', True), ('state', 'failed')), include=('frozen_at',), name='run_failed_lately'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('frozen_at__isnull', False)), fields=['id'], name='run_frozen'),
        ),
        migrations.AddIndex(
            model_name='runattempt',
            index=models.Index(condition=models.Q(('filter_code__isnull', False)), fields=['filter_code', 'id'], include=('run',), name='run_attempt_filtered'),
        ),
        migrations.AddIndex(
            model_name='runattempt',
            index=models.Index(models.OrderBy(models.F('filtered_at'), descending=True, nulls_last=True), condition=models.Q(('filter_code__isnull', False)), include=('filter_code',), name='run_attempt_filtered_at'),
        ),
        migrations.AddIndex(
            model_name='runattempt',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['started_at', 'ended_at', 'state'], name='run_attempt_times', opclasses=['timestamptz_minmax_ops', 'timestamptz_minmax_ops', 'text_bloom_ops(n_distinct_per_range=16)'], pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='takeover',
            index=models.Index(fields=['cause', '-id'], name='take_over_of_cause'),
        ),
        migrations.AddIndex(
            model_name='takeover',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['started_at', 'ended_at', 'new_token', 'holder', 'old_holder'], name='take_over_times', opclasses=['timestamptz_minmax_ops', 'timestamptz_minmax_ops', 'int8_minmax_ops', 'uuid_bloom_ops(n_distinct_per_range=64)', 'uuid_bloom_ops(n_distinct_per_range=64)'], pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='takeoveritem',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['decided_at', 'decision', 'hostname'], name='take_over_item_times', opclasses=['timestamptz_minmax_ops', 'text_bloom_ops(n_distinct_per_range=16)', 'text_bloom_ops(n_distinct_per_range=16)'], pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='taskinstance',
            index=models.Index(condition=models.Q(('filter_code__isnull', False)), fields=['filter_code', 'id'], include=('run', 'shard', 'task_id', 'map_index', 'ended_state'), name='task_instance_filtered'),
        ),
        migrations.AddIndex(
            model_name='taskinstance',
            index=models.Index(models.OrderBy(models.F('filtered_at'), descending=True, nulls_last=True), condition=models.Q(('filter_code__isnull', False)), include=('filter_code',), name='task_instance_filtered_at'),
        ),
        migrations.AddIndex(
            model_name='taskinstance',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['queued_at', 'started_at', 'ended_at', 'shard', 'map_index', 'task_id', 'pool', 'queue'], name='task_instance_times', opclasses=['timestamptz_minmax_ops', 'timestamptz_minmax_ops', 'timestamptz_minmax_ops', 'int4_minmax_ops', 'int4_minmax_ops', 'text_bloom_ops(n_distinct_per_range=64)', 'text_bloom_ops(n_distinct_per_range=16)', 'text_bloom_ops(n_distinct_per_range=16)'], pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='taskinstance',
            index=models.Index(condition=models.Q(('map_label__isnull', False)), fields=['id'], name='task_instance_labelled'),
        ),
        migrations.AddIndex(
            model_name='trigger',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['created_at', 'due_at', 'timeout_at', 'run_id', 'state'], name='trigger_times', opclasses=['timestamptz_minmax_ops', 'timestamptz_minmax_ops', 'timestamptz_minmax_ops', 'int8_minmax_ops', 'text_bloom_ops(n_distinct_per_range=16)'], pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='variablechange',
            index=models.Index(condition=models.Q(('flow_id__isnull', False)), fields=['flow_id', '-id'], name='variable_change_of_flow'),
        ),
        migrations.AddIndex(
            model_name='variablechange',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['at', 'actor', 'action', 'attempt_id'], name='variable_change_times', opclasses=['timestamptz_minmax_ops', 'text_bloom_ops(n_distinct_per_range=64)', 'text_bloom_ops(n_distinct_per_range=16)', 'uuid_bloom_ops(n_distinct_per_range=64)'], pages_per_range=16),
        ),
    ]
