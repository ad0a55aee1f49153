"""What the admin and Django's permissions need to know of jobs. There is no table: jobs are read from their store."""

from django.db import models
from django.utils.translation import gettext_lazy


class QueuedJob(models.Model):
    """A job, as the admin lists it; without a migration."""

    class Meta:
        """Names, and the permissions `tarry.view_queuedjob`, `tarry.change_queuedjob` and `tarry.delete_queuedjob`."""

        managed = False
        default_permissions = ("view", "change", "delete")
        verbose_name = gettext_lazy("job")
        verbose_name_plural = gettext_lazy("jobs")


class QueuedSchedule(models.Model):
    """A schedule that the store keeps, as the admin lists it; without a migration."""

    class Meta:
        """Names, and the permissions `tarry.view_queuedschedule`, and so on with `add`, `change` and `delete`."""

        managed = False
        default_permissions = ("add", "change", "delete", "view")
        verbose_name = gettext_lazy("schedule")
        verbose_name_plural = gettext_lazy("schedules")
