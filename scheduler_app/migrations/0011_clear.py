"""Clears: their plans, and the attempts that they set aside."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('scheduler_app', '0010_records_by_index'),
    ]

    operations = [
        migrations.AddField(
            model_name='attempt',
            name='cleared',
            field=models.JSONField(null=True),
        ),
        migrations.CreateModel(
            name='ClearPlan',
            fields=[
                ('id', models.UUIDField(primary_key=True, serialize=False)),
                ('run_id', models.BigIntegerField()),
                ('ti_ids', models.JSONField(null=True)),
                ('options', models.JSONField()),
                ('hash', models.CharField(max_length=64)),
                ('content', models.JSONField()),
                ('actor', models.CharField(max_length=250)),
                ('created_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('used_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'clear_plan',
                'indexes': [models.Index(condition=models.Q(('used_at__isnull', True)), fields=['expires_at'], name='clear_plan_unused')],
            },
        ),
    ]
