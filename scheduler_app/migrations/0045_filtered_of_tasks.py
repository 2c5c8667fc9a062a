"""Indexes over what was set aside know the task of each row, so that a task's are found from them alone."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('scheduler_app', '0044_short_laws'),
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
            model_name='taskinstance',
            name='task_instance_filtered_at',
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(models.OrderBy(models.F('filtered_at'), descending=True, nulls_last=True), condition=models.Q(('filter_code__isnull', False)), include=('filter_code', 'run', 'id', 'shard', 'task_id', 'ti'), name='attempt_filtered_at'),
        ),
        migrations.AddIndex(
            model_name='executorevent',
            index=models.Index(models.OrderBy(models.F('filtered_at'), descending=True, nulls_last=True), condition=models.Q(('filter_code__isnull', False)), include=('filter_code', 'run', 'id', 'shard', 'task_id', 'ti_id'), name='executor_event_filtered_at'),
        ),
        migrations.AddIndex(
            model_name='taskinstance',
            index=models.Index(models.OrderBy(models.F('filtered_at'), descending=True, nulls_last=True), condition=models.Q(('filter_code__isnull', False)), include=('filter_code', 'run', 'id', 'shard', 'task_id'), name='task_instance_filtered_at'),
        ),
    ]
