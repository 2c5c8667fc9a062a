"""Indexes over what was set aside know the run of each row, so that a flow's are found from them alone."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('scheduler_app', '0042_records_by_number'),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name='attempt',
            name='attempt_filtered_at',
        ),
        migrations.RemoveIndex(
            model_name='executorevent',
            name='executor_event_filtered_at',
        ),
        migrations.RemoveIndex(
            model_name='run',
            name='run_filtered_at',
        ),
        migrations.RemoveIndex(
            model_name='runattempt',
            name='run_attempt_filtered_at',
        ),
        migrations.RemoveIndex(
            model_name='taskinstance',
            name='task_instance_filtered_at',
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(models.OrderBy(models.F('filtered_at'), descending=True, nulls_last=True), condition=models.Q(('filter_code__isnull', False)), include=('filter_code', 'run', 'id', 'shard'), name='attempt_filtered_at'),
        ),
        migrations.AddIndex(
            model_name='executorevent',
            index=models.Index(models.OrderBy(models.F('filtered_at'), descending=True, nulls_last=True), condition=models.Q(('filter_code__isnull', False)), include=('filter_code', 'run', 'id', 'shard'), name='executor_event_filtered_at'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(models.OrderBy(models.F('filtered_at'), descending=True, nulls_last=True), condition=models.Q(('filter_code__isnull', False)), include=('filter_code', 'id', 'flow', 'shard'), name='run_filtered_at'),
        ),
        migrations.AddIndex(
            model_name='runattempt',
            index=models.Index(models.OrderBy(models.F('filtered_at'), descending=True, nulls_last=True), condition=models.Q(('filter_code__isnull', False)), include=('filter_code', 'run', 'id'), name='run_attempt_filtered_at'),
        ),
        migrations.AddIndex(
            model_name='taskinstance',
            index=models.Index(models.OrderBy(models.F('filtered_at'), descending=True, nulls_last=True), condition=models.Q(('filter_code__isnull', False)), include=('filter_code', 'run', 'id', 'shard'), name='task_instance_filtered_at'),
        ),
    ]
