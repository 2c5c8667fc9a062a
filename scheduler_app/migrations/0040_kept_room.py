"""For whom slots are kept, told to every scheduler."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('scheduler_app', '0039_in_touch'),
    ]

    operations = [
        migrations.CreateModel(
            name='KeptRoom',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(max_length=8)),
                ('name', models.CharField(max_length=250)),
                ('ti_id', models.BigIntegerField()),
                ('slots', models.IntegerField()),
                ('priority', models.IntegerField()),
                ('since', models.DateTimeField()),
                ('until_at', models.DateTimeField()),
                ('flow_id', models.CharField(max_length=250)),
                ('task_id', models.CharField(max_length=250)),
            ],
            options={
                'db_table': 'kept_room',
                'constraints': [models.CheckConstraint(condition=models.Q(('kind__in', ('pool', 'key'))), name='kept_room_kind'), models.UniqueConstraint(fields=('kind', 'name'), name='kept_room_once')],
            },
        ),
    ]
