from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('analyses', '0019_request_id'),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name='countedsavings',
            name='largest_savings',
        ),
        migrations.AddIndex(
            model_name='countedsavings',
            index=models.Index(fields=['-usd_per_year', '-analysis', 'month', 'is_realised'], name='largest_savings'),
        ),
        # As they were, only made after that of the status: see FILTERED_BY.
        migrations.RemoveIndex(
            model_name='analysis',
            name='analyses_an_precisi_b31f0d_idx',
        ),
        migrations.AddIndex(
            model_name='analysis',
            index=models.Index(fields=['precision', '-id', 'model', 'gpu', 'measured_gpu', 'status', 'owner', 'queued_at', 'adopted_at', 'optimizer', 'recommended_batch_size', 'largest_batch_size', 'speedup', 'usd_per_year', 'source'], name='analyses_an_precisi_b31f0d_idx'),
        ),
        migrations.RemoveIndex(
            model_name='analysis',
            name='analyses_an_model_59d75a_idx',
        ),
        migrations.AddIndex(
            model_name='analysis',
            index=models.Index(fields=['model', '-id', 'gpu', 'measured_gpu', 'precision', 'status', 'owner', 'queued_at', 'adopted_at', 'optimizer', 'recommended_batch_size', 'largest_batch_size', 'speedup', 'usd_per_year', 'source'], name='analyses_an_model_59d75a_idx'),
        ),
        migrations.RemoveIndex(
            model_name='analysis',
            name='analyses_an_gpu_d35fcc_idx',
        ),
        migrations.AddIndex(
            model_name='analysis',
            index=models.Index(fields=['gpu', 'measured_gpu', '-id', 'model', 'precision', 'status', 'owner', 'queued_at', 'adopted_at', 'optimizer', 'recommended_batch_size', 'largest_batch_size', 'speedup', 'usd_per_year', 'source'], name='analyses_an_gpu_d35fcc_idx'),
        ),
    ]
