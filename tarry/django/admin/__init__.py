"""The pages of Django's admin about jobs: a list, and a page for each, with retry and cancel."""

from typing import Any

from django.apps import apps
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from tarry.django.admin import jobs
from tarry.errors import StoreError


@admin.register(apps.get_model("tarry", "QueuedJob"))
class QueuedJobAdmin(admin.ModelAdmin):
    """Reads jobs from their store. Who may see them has `view_queuedjob`; retry and cancel need `change_queuedjob`."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody: jobs are enqueued."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody: finished jobs are deleted by the rules of their queue."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list; a POST retries or cancels the jobs that are marked."""
        self._check_view(request)
        if request.method == "POST":
            return self._act(request, request.POST.getlist("job")[: jobs.PAGE])
        try:
            found = jobs.find_jobs(request.GET)
        except ValueError as error:
            raise Http404(str(error)) from None
        except StoreError as error:
            found = jobs.nothing_found(request.GET, str(error))
        return self._page(request, "change_list", {"title": "Jobs", "found": found})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The page of one job; a POST retries or cancels it."""
        self._check_view(request)
        if request.method == "POST":
            return self._act(request, [object_id])
        try:
            job = jobs.read_job(request.GET, object_id)
        except (ValueError, LookupError) as error:
            raise Http404(str(error)) from None
        except StoreError as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(request.path_info.rsplit(object_id, 1)[0])
        return self._page(request, "change_form", {"title": f"Job {object_id}", "job": job})

    def _check_view(self, request: HttpRequest) -> None:
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied

    def _act(self, request: HttpRequest, ids: list[str]) -> HttpResponse:
        if not self.has_change_permission(request):
            raise PermissionDenied
        act = request.POST.get("act", "")
        if act not in jobs.ACTS:
            raise Http404(f"no such act: {act}")
        try:
            done = jobs.change_jobs(request.GET, act, ids, who=request.user.get_username())
        except ValueError as error:
            raise Http404(str(error)) from None
        except StoreError as error:
            messages.error(request, str(error))
        else:
            self._tell(request, act, done, len(ids))
        return HttpResponseRedirect(request.get_full_path())

    def _tell(self, request: HttpRequest, act: str, done: int, of: int) -> None:
        said = f"{jobs.ACTS[act]}: {done} of {of}"
        if done == of:
            messages.success(request, said)
        else:
            messages.warning(request, f"{said}. The others had ended, run, or were no longer there.")

    def _page(self, request: HttpRequest, name: str, more: dict[str, Any]) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "may_change": self.has_change_permission(request),
            **more,
        }
        return TemplateResponse(request, f"admin/tarry/queuedjob/{name}.html", context)
