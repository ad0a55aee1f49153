"""What the admin and Django's permissions need to know of jobs. There is no table: jobs are read from their store."""

from django.db import models


class QueuedJob(models.Model):
    """A job, as the admin lists it; without a migration."""

    class Meta:
        """Names, and the permissions `tarry.view_queuedjob` and `tarry.change_queuedjob`."""

        managed = False
        default_permissions = ("view", "change")
        verbose_name = "job"
        verbose_name_plural = "jobs"
