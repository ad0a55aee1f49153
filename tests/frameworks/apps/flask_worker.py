from tests.frameworks.apps.flask_app import create_app, jobs

create_app()
__all__ = ["jobs"]
