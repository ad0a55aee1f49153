"""The addresses."""

from django.urls import path

from examples.django_shop.orders import views

urlpatterns = [
    path("buy", views.buy),
    path("orders/<int:number>/pay", views.pay),
    path("orders/<int:number>", views.show),
]
