"""What a person said of task instances and runs; clears of several runs, and what undoes them."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('scheduler_app', '0013_freezes'),
    ]

    operations = [
        migrations.CreateModel(
            name='ClearBatch',
            fields=[
                ('id', models.UUIDField(primary_key=True, serialize=False)),
                ('asked', models.JSONField()),
                ('options', models.JSONField()),
                ('hash', models.CharField(max_length=64)),
                ('actor', models.CharField(max_length=250)),
                ('reason', models.TextField(blank=True, default='')),
                ('note', models.TextField(null=True)),
                ('created_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('begun_at', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'clear_batch',
            },
        ),
        migrations.AddField(
            model_name='clearplan',
            name='refusal',
            field=models.TextField(null=True),
        ),
        migrations.AddField(
            model_name='clearplan',
            name='undo',
            field=models.JSONField(null=True),
        ),
        migrations.AddField(
            model_name='clearplan',
            name='undone_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='clearplan',
            name='undone_by',
            field=models.CharField(max_length=250, null=True),
        ),
        migrations.AddField(
            model_name='run',
            name='mark',
            field=models.JSONField(null=True),
        ),
        migrations.AddField(
            model_name='taskinstance',
            name='mark',
            field=models.JSONField(null=True),
        ),
        migrations.AddField(
            model_name='clearplan',
            name='batch',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='plans', to='scheduler_app.clearbatch'),
        ),
        migrations.AddIndex(
            model_name='clearplan',
            index=models.Index(condition=models.Q(('batch__isnull', False)), fields=['batch', 'id'], name='clear_plan_of_batch'),
        ),
    ]
