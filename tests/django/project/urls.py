from django.contrib import admin
from django.urls import path

from tests.django.project import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("enqueue", views.enqueue),
    path("aenqueue", views.aenqueue),
]
