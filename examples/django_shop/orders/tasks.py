"""The tasks. They get the order's number, since arguments are JSON, and read the order as it is then."""

from django.core.mail import send_mail
from django.db import transaction
from django.db.models import F

from examples.django_shop.orders.models import Item, Order
from tarry.django import task


@task(retries=5, timeout="30s")
def confirm(number: int) -> str:
    """Mails what was ordered. It may run twice after a crash, and the flag keeps the second mail back."""
    order = Order.objects.select_related("item").get(pk=number)
    if not order.is_confirmed:
        send_mail("Your order", f"One {order.item.name}, order {number}.", "shop@example.org", [order.email])
        Order.objects.filter(pk=number).update(is_confirmed=True)
    return f"order {number} is confirmed to {order.email}"


@task(timeout="30s")
def release(number: int) -> bool:
    """Puts back what nobody has paid; whether it did. Once: the order's state is changed in the same transaction."""
    with transaction.atomic():
        is_open = bool(Order.objects.filter(pk=number, state="new").update(state="released"))
        if is_open:
            Item.objects.filter(order=number).update(stock=F("stock") + 1)
    return is_open
