"""What is sold, and to whom."""

from django.db import models


class Item(models.Model):
    """How many there are that nobody has ordered."""

    name = models.CharField(max_length=100, unique=True)
    stock = models.PositiveIntegerField()


class Order(models.Model):
    """`state` is new, paid or released."""

    item = models.ForeignKey(Item, on_delete=models.CASCADE)
    email = models.EmailField()
    state = models.CharField(max_length=10, default="new")
    is_confirmed = models.BooleanField(default=False)
