"""Incidents: about which flow, told to whom, acknowledged by whom; and when a run is late."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('scheduler_app', '0016_leadership_acts'),
    ]

    operations = [
        migrations.CreateModel(
            name='Alert',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('about', models.CharField(max_length=10)),
                ('number', models.IntegerField()),
                ('notifier_key', models.CharField(max_length=64)),
                ('notifier', models.JSONField()),
                ('state', models.CharField(default='waiting', max_length=10)),
                ('tries', models.IntegerField(default=0)),
                ('due_at', models.DateTimeField()),
                ('claimed_by', models.UUIDField(null=True)),
                ('letter', models.UUIDField(null=True)),
                ('said', models.JSONField(default=list)),
                ('created_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'alert',
            },
        ),
        migrations.AddField(
            model_name='flow',
            name='scheduled_since',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='incident',
            name='acknowledge_note',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AddField(
            model_name='incident',
            name='acknowledged_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='incident',
            name='acknowledged_by',
            field=models.CharField(blank=True, db_default='', default='', max_length=250),
        ),
        migrations.AddField(
            model_name='incident',
            name='count',
            field=models.IntegerField(db_default=1, default=1),
        ),
        migrations.AddField(
            model_name='incident',
            name='flow_id',
            field=models.CharField(max_length=250, null=True),
        ),
        migrations.AddField(
            model_name='incident',
            name='is_end_told',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name='incident',
            name='lease_token',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='incident',
            name='resolution',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AddField(
            model_name='incident',
            name='run_id',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='incident',
            name='shard',
            field=models.IntegerField(null=True),
        ),
        migrations.AddField(
            model_name='incident',
            name='told_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='incident',
            name='told_count',
            field=models.IntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='run',
            name='is_late_judged',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name='run',
            name='late_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(fields=['kind', 'subject', '-id'], name='incident_of_subject'),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(fields=['flow_id', '-id'], name='incident_of_flow'),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(condition=models.Q(('told_count', 0)), fields=['id'], name='incident_untold'),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(condition=models.Q(('is_end_told', False), ('resolved_at__isnull', False)), fields=['resolved_at'], name='incident_end_untold'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('is_late_judged', False), ('late_at__isnull', False)), fields=['shard', 'late_at'], name='run_late'),
        ),
        migrations.AddField(
            model_name='alert',
            name='incident',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='alerts', to='scheduler_app.incident'),
        ),
        migrations.AddIndex(
            model_name='alert',
            index=models.Index(condition=models.Q(('ended_at__isnull', True)), fields=['due_at'], name='alert_waiting'),
        ),
        migrations.AddConstraint(
            model_name='alert',
            constraint=models.UniqueConstraint(fields=('incident', 'about', 'number', 'notifier_key'), name='alert_unique'),
        ),
        migrations.AddConstraint(
            model_name='alert',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('state', 'waiting')), models.Q(('ended_at__isnull', False), ('state__in', ['sent', 'failed'])), _connector='OR'), name='alert_ended_when_over'),
        ),
        # What was raised before anybody could be told is not told now.
        migrations.RunSQL(
            "UPDATE incident SET told_count = 1, told_at = raised_at,"
            " is_end_told = resolved_at IS NOT NULL",
            migrations.RunSQL.noop,
        ),
    ]
