"""The beanstalkd protocol: its clients put, take and end jobs of every store."""
