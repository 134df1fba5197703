"""The audit log notes deletions of imported jobs."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0014_known_networks'),
    ]

    operations = [
        migrations.AlterField(
            model_name='auditentry',
            name='action',
            field=models.CharField(choices=[('member_invited', 'Member invited'), ('invitation_renewed', 'Invitation renewed'), ('invitation_revoked', 'Invitation revoked'), ('member_joined', 'Member joined'), ('role_changed', 'Role changed'), ('member_deactivated', 'Member deactivated'), ('member_reactivated', 'Member reactivated'), ('reset_link_made', 'Password reset link created'), ('passwords_guessed', 'Too many wrong passwords'), ('password_changed', 'Password changed'), ('address_changed', 'E-mail address changed'), ('factor_added', 'Second factor added'), ('factor_removed', 'Second factor removed'), ('recovery_codes_made', 'Recovery codes created'), ('recovery_code_used', 'Recovery code used'), ('sign_on_linked', 'Single sign-on linked'), ('sign_on_unlinked', 'Single sign-on unlinked'), ('sessions_ended', 'Other sessions ended'), ('token_made', 'API token created'), ('token_revoked', 'API token revoked'), ('price_set', 'Price set'), ('gpu_added', 'GPU added'), ('gpu_changed', 'GPU changed'), ('gpu_removed', 'GPU removed'), ('lab_changed', 'Lab settings changed'), ('adopted', 'Recommendation adopted'), ('adoption_taken_back', 'Adoption undone'), ('change_mentioned', 'Change mentioned'), ('analysis_deleted', 'Analysis deleted'), ('training_deleted', 'Training run deleted'), ('jobs_deleted', 'Imported jobs deleted'), ('node_deleted', 'Node deleted'), ('share_link_made', 'Share link created'), ('share_link_revoked', 'Share link revoked')], max_length=30),
        ),
    ]
