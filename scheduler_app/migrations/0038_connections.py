"""Connections: where outside systems are, and what opens them."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('scheduler_app', '0037_kept_keys'),
    ]

    operations = [
        migrations.CreateModel(
            name='Connection',
            fields=[
                ('connection_id', models.CharField(max_length=250, primary_key=True, serialize=False)),
                ('conn_type', models.CharField(max_length=250)),
                ('host', models.TextField(blank=True, default='')),
                ('login', models.TextField(blank=True, default='')),
                ('schema', models.TextField(blank=True, default='')),
                ('port', models.IntegerField(null=True)),
                ('description', models.TextField(blank=True, default='')),
                ('has_password', models.BooleanField(default=False)),
                ('extra_keys', models.JSONField(default=list)),
                ('sealed', models.TextField(blank=True, default='')),
                ('sealed_with', models.CharField(blank=True, default='', max_length=16)),
                ('version', models.BigIntegerField(default=1)),
                ('updated_at', models.DateTimeField()),
                ('updated_by', models.CharField(blank=True, default='', max_length=250)),
            ],
            options={
                'db_table': 'connection',
            },
        ),
    ]
