"""Retry rules on an answer, in CEL or in the form of php-delayqueue."""
