"""The pages of Django's admin about jobs: a list, and a page for each, with retry, cancel and delete."""

from typing import Any

from django import VERSION
from django.apps import apps
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext

from tarry.django import (
    admin_jobs,
    schedule_admin,  # noqa: F401 - registers its pages
)
from tarry.errors import StoreError


@admin.register(apps.get_model("tarry", "QueuedJob"))
class QueuedJobAdmin(admin.ModelAdmin):
    """Reads jobs from their store. Who may see them has `view_queuedjob`; retry and cancel need `change_queuedjob`, and
    delete `delete_queuedjob`."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody: jobs are enqueued."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list; a POST does something to the jobs that are marked."""
        self._check_view(request)
        if request.method == "POST":
            return self._act(request, request.POST.getlist("job")[: admin_jobs.PAGE])
        if wanted := request.GET.get("q", "").strip():
            return HttpResponseRedirect(admin_jobs.search_target(request.GET, wanted))
        try:
            found = admin_jobs.find_jobs(request.GET)
        except ValueError as error:
            raise Http404(str(error)) from None
        except StoreError as error:
            found = admin_jobs.nothing_found(request.GET, str(error))
        return self._page(request, "change_list", {"title": gettext("Jobs"), "found": found})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The page of one job; a POST does something to it."""
        self._check_view(request)
        if request.method == "POST":
            return self._act(request, [object_id])
        try:
            job = admin_jobs.read_job(request.GET, object_id)
        except (ValueError, LookupError) as error:
            raise Http404(str(error)) from None
        except StoreError as error:
            messages.error(request, str(error))
            return self._to_list(request)
        return self._page(request, "change_form", {"title": job.row.task, "job": job, "place": object_id})

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Asks whether a job is to be deleted."""
        self._check_act(request, "delete")
        return self._ask(request, [object_id])

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """There is none: the page of a job has its attempts."""
        raise Http404

    def _check_view(self, request: HttpRequest) -> None:
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied

    def _check_act(self, request: HttpRequest, act: str) -> None:
        is_allowed = self.has_delete_permission if act == "delete" else self.has_change_permission
        if not is_allowed(request):
            raise PermissionDenied
        if act not in admin_jobs.ACTS:
            raise Http404(f"no such act: {act}")

    def _act(self, request: HttpRequest, ids: list[str]) -> HttpResponse:
        act = request.POST.get("act", "")
        self._check_act(request, act)
        if act == "delete" and "sure" not in request.POST:
            return self._ask(request, ids)
        try:
            done = admin_jobs.change_jobs(request.GET, act, ids, who=request.user.get_username())
        except ValueError as error:
            raise Http404(str(error)) from None
        except StoreError as error:
            messages.error(request, str(error))
        else:
            self._tell(request, act, done, len(ids))
        # The page of a deleted job is gone.
        return self._to_list(request) if act == "delete" else HttpResponseRedirect(request.get_full_path())

    def _ask(self, request: HttpRequest, ids: list[str]) -> HttpResponse:
        title = gettext("Delete jobs?")
        return self._page(request, "delete_confirmation", {"title": title, "chosen": ids, "place": gettext("Delete")})

    def _to_list(self, request: HttpRequest) -> HttpResponse:
        return HttpResponseRedirect(reverse("admin:tarry_queuedjob_changelist") + admin_jobs.home_query(request.GET))

    def _tell(self, request: HttpRequest, act: str, done: int, of: int) -> None:
        said = admin_jobs.ACTS[act] % {"done": done, "all": of}
        if done == of:
            messages.success(request, said)
        else:
            why = gettext("The others had ended, run, or were no longer there.")
            messages.warning(request, f"{said}. {why}")

    def _page(self, request: HttpRequest, name: str, more: dict[str, Any]) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "crumbs_are_a_list": VERSION >= (6, 1),
            "may_change": self.has_change_permission(request),
            "may_delete": self.has_delete_permission(request),
            "home_query": admin_jobs.home_query(request.GET),
            **more,
        }
        return TemplateResponse(request, f"admin/tarry/queuedjob/{name}.html", context)
