"""Check constraints in few words: the database reads them anew for each statement that writes."""

from __future__ import annotations

import django.db.models.lookups
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('scheduler_app', '0043_filtered_of_flows'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='attempt',
            name='attempt_standing_complete',
        ),
        migrations.RemoveConstraint(
            model_name='attempt',
            name='attempt_ended_has_outcome',
        ),
        migrations.RemoveConstraint(
            model_name='executorevent',
            name='executor_event_standing_complete',
        ),
        migrations.RemoveConstraint(
            model_name='executorevent',
            name='executor_event_judged_when_verdict',
        ),
        migrations.RemoveConstraint(
            model_name='run',
            name='run_standing_complete',
        ),
        migrations.RemoveConstraint(
            model_name='run',
            name='run_ended_when_terminal',
        ),
        migrations.RemoveConstraint(
            model_name='runattempt',
            name='run_attempt_standing_complete',
        ),
        migrations.RemoveConstraint(
            model_name='taskinstance',
            name='task_instance_standing_complete',
        ),
        migrations.RemoveConstraint(
            model_name='taskinstance',
            name='task_instance_open_unless_terminal',
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.CheckConstraint(condition=django.db.models.lookups.Exact(models.Func(models.F('filter_code'), models.F('filtered_at'), models.F('filter_detail'), output_field=models.IntegerField(), template='(num_nonnulls(%(expressions)s) %%%% 3)'), 0), name='attempt_standing_complete'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.CheckConstraint(condition=models.Q(models.Func(django.db.models.lookups.GreaterThan(models.Func(models.F('state'), output_field=models.IntegerField(), template="array_position('{ended,issued,running}'::text[], %(expressions)s::text)"), 1), models.F('is_live'), arg_joiner=' IS NOT DISTINCT FROM ', output_field=models.BooleanField(), template='(%(expressions)s)'), django.db.models.lookups.Exact(django.db.models.lookups.IsNull(models.F('outcome'), True), models.F('is_live')), models.Q(('is_live', True), ('ended_at__isnull', False), _connector='OR')), name='attempt_ended_has_outcome'),
        ),
        migrations.AddConstraint(
            model_name='executorevent',
            constraint=models.CheckConstraint(condition=django.db.models.lookups.Exact(models.Func(models.F('filter_code'), models.F('filtered_at'), models.F('filter_detail'), output_field=models.IntegerField(), template='(num_nonnulls(%(expressions)s) %%%% 3)'), 0), name='executor_event_standing_complete'),
        ),
        migrations.AddConstraint(
            model_name='executorevent',
            constraint=models.CheckConstraint(condition=django.db.models.lookups.Exact(django.db.models.lookups.Exact(models.F('verdict'), 'pending'), django.db.models.lookups.IsNull(models.F('judged_at'), True)), name='executor_event_judged_when_verdict'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.CheckConstraint(condition=django.db.models.lookups.Exact(models.Func(models.F('filter_code'), models.F('filtered_at'), models.F('filter_detail'), output_field=models.IntegerField(), template='(num_nonnulls(%(expressions)s) %%%% 3)'), 0), name='run_standing_complete'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.CheckConstraint(condition=models.Q(models.Func(django.db.models.lookups.GreaterThan(models.Func(models.F('state'), output_field=models.IntegerField(), template="array_position('{success,failed,queued,running}'::text[], %(expressions)s::text)"), 2), models.F('is_active'), arg_joiner=' IS NOT DISTINCT FROM ', output_field=models.BooleanField(), template='(%(expressions)s)'), django.db.models.lookups.Exact(django.db.models.lookups.IsNull(models.F('ended_at'), True), models.F('is_active'))), name='run_ended_when_terminal'),
        ),
        migrations.AddConstraint(
            model_name='runattempt',
            constraint=models.CheckConstraint(condition=django.db.models.lookups.Exact(models.Func(models.F('filter_code'), models.F('filtered_at'), models.F('filter_detail'), output_field=models.IntegerField(), template='(num_nonnulls(%(expressions)s) %%%% 3)'), 0), name='run_attempt_standing_complete'),
        ),
        migrations.AddConstraint(
            model_name='taskinstance',
            constraint=models.CheckConstraint(condition=django.db.models.lookups.Exact(models.Func(models.F('filter_code'), models.F('filtered_at'), models.F('filter_detail'), output_field=models.IntegerField(), template='(num_nonnulls(%(expressions)s) %%%% 3)'), 0), name='task_instance_standing_complete'),
        ),
        migrations.AddConstraint(
            model_name='taskinstance',
            constraint=models.CheckConstraint(condition=models.Func(django.db.models.lookups.GreaterThan(models.Func(models.F('state'), output_field=models.IntegerField(), template="array_position('{success,failed,skipped,upstream_failed,removed,none,scheduled,queued,running,restarting,deferred,up_for_retry,up_for_reschedule}'::text[], %(expressions)s::text)"), 5), models.F('is_open'), arg_joiner=' IS NOT DISTINCT FROM ', output_field=models.BooleanField(), template='(%(expressions)s)'), name='task_instance_open_unless_terminal'),
        ),
    ]
