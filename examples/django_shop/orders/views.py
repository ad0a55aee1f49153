"""The pages, as JSON."""

from datetime import timedelta

from django.db import transaction
from django.db.models import F
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from examples.django_shop.orders.models import Item, Order
from examples.django_shop.orders.tasks import confirm, release

PAY_WITHIN = timedelta(minutes=30)


@csrf_exempt  # only for curl: forms of your own need no such line
@require_POST
def buy(request: HttpRequest) -> JsonResponse:
    """The order, its mail and its release are all there after the commit, or none of them."""
    with transaction.atomic():
        item = get_object_or_404(Item.objects.select_for_update(), name=request.POST.get("item", ""))
        order = Order.objects.create(item=item, email=request.POST.get("email", ""))
        # Before we know that there is one: what is rolled back takes its jobs with it.
        confirm.enqueue(order.pk)
        release.using(run_after=timezone.now() + PAY_WITHIN).enqueue(order.pk)
        if item.stock < 1:
            transaction.set_rollback(True)
            return JsonResponse({"error": "none is left"}, status=409)
        Item.objects.filter(pk=item.pk).update(stock=F("stock") - 1)
    return JsonResponse({"order": order.pk}, status=201)


@csrf_exempt
@require_POST
def pay(request: HttpRequest, number: int) -> JsonResponse:
    """Paid, unless it was released before."""
    if not Order.objects.filter(pk=number, state="new").update(state="paid"):
        return JsonResponse({"error": "there is no such open order"}, status=409)
    return show(request, number)


def show(request: HttpRequest, number: int) -> JsonResponse:
    """How the order is."""
    order = get_object_or_404(Order, pk=number)
    return JsonResponse({"order": number, "state": order.state, "confirmed": order.is_confirmed})
