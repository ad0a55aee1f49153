"""The pages of Django's admin about schedules that the store keeps: people make, edit, pause and delete them."""

from collections.abc import Callable
from typing import Any

from django.apps import apps
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext

from tarry.client.acting import Actor, acting
from tarry.client.schedules.facts import schedule_facts
from tarry.django import admin_jobs
from tarry.django.app import DjangoApp
from tarry.django.moments import moment
from tarry.django.schedule_form import ScheduleForm, initial
from tarry.errors import ScheduleNotFound, StoreError
from tarry.model.duration import SECOND
from tarry.model.schedules.definition import CallOptions
from tarry.model.schedules.stored import StoredSchedule
from tarry.model.schedules.words import describe
from tarry.store.queries import stored_schedules

PAGE = 100


@admin.register(apps.get_model("tarry", "QueuedSchedule"))
class QueuedScheduleAdmin(admin.ModelAdmin):
    """Reads schedules from their store. Those of code are not among them."""

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list, by name."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        try:
            app = _app(request)
            client, prefix = app.client, request.GET.get("q", "")[:100]
            found = stored_schedules.page(client.store, prefix, request.GET.get("after", "")[:200], PAGE)
            now = client.clock.now()
            rows = [(facts, _times(facts), describe(facts.cron, facts.zone)) for facts in (
                schedule_facts(name, one, now) for name, one in found.items()
            )]  # fmt: skip
            trouble = ""
        except StoreError as error:
            rows, prefix, trouble = [], "", str(error)
        more = rows[-1][0].name if len(rows) == PAGE else ""
        title = gettext("Schedules")
        return self._page(
            request, "change_list", {"title": title, "rows": rows, "prefix": prefix, "more": more, "trouble": trouble}
        )

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """The form of a new one."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = ScheduleForm(request.POST or None)
        return self._save(request, form, gettext("Add schedule"))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The form of one, or an act."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        name, app = unquote(object_id), _app(request)
        one = stored_schedules.get(app.client.store, name)
        if one is None:
            raise Http404(f"no schedule {name}")
        if act := request.POST.get("act", ""):
            return self._act(request, act, name)
        form = ScheduleForm(request.POST or None, initial=initial(app, name, one))
        return self._save(request, form, name, one)

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Asks whether it is to be deleted; a POST deletes it."""
        if not self.has_delete_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return self._page(
                request, "delete_confirmation", {"title": gettext("Delete the schedule?"), "place": unquote(object_id)}
            )
        return self._act(request, "delete", unquote(object_id))

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """There is none."""
        raise Http404

    def _save(
        self, request: HttpRequest, form: ScheduleForm, title: str, one: StoredSchedule | None = None
    ) -> HttpResponse:
        """one: as it is now; None: it is a new one."""
        place = "" if one is None else title
        if one is not None:
            form.fields["name"].disabled = True
        if request.method == "POST":
            if place and not self.has_change_permission(request):
                raise PermissionDenied
            try:
                app, who = _app(request), request.user.get_username()
                if (
                    form.is_valid()
                    and (saved := form.save(app, who, CallOptions() if one is None else one.definition.options))
                    is not None
                ):
                    messages.success(request, gettext("Schedule %(name)s is saved.") % {"name": saved.name})
                    return self._to_list(request)
            except StoreError as error:
                messages.error(request, str(error))
        return self._page(request, "change_form", {"title": title, "form": form, "place": place})

    def _act(self, request: HttpRequest, act: str, name: str) -> HttpResponse:
        is_allowed = self.has_delete_permission if act == "delete" else self.has_change_permission
        if request.method != "POST" or not is_allowed(request):
            raise PermissionDenied
        schedules = _app(request).schedules
        acts: dict[str, Callable[[str], object]] = {
            "pause": schedules.pause, "resume": schedules.resume, "delete": schedules.delete,
        }  # fmt: skip
        if act not in acts:
            raise Http404(f"no such act: {act}")
        try:
            with acting(Actor(request.user.get_username(), via="program")):
                acts[act](name)
        except (StoreError, ScheduleNotFound) as error:
            messages.error(request, str(error))
        return self._to_list(request)

    def _to_list(self, request: HttpRequest) -> HttpResponse:
        return HttpResponseRedirect(
            reverse("admin:tarry_queuedschedule_changelist") + admin_jobs.home_query(request.GET)
        )

    def _page(self, request: HttpRequest, name: str, more: dict[str, Any]) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "may_add": self.has_add_permission(request),
            "may_change": self.has_change_permission(request),
            "may_delete": self.has_delete_permission(request),
            "home_query": admin_jobs.home_query(request.GET),
            **more,
        }
        return TemplateResponse(request, f"admin/tarry/queuedschedule/{name}.html", context)


def _times(facts: Any) -> Any:
    return [moment(round((each or 0) * SECOND)) for each in (facts.next, facts.last)]


def _app(request: HttpRequest) -> DjangoApp:
    try:
        return admin_jobs.app_of(request.GET)
    except ValueError as error:
        raise Http404(str(error)) from None
