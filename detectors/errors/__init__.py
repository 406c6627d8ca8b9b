"""Why calls fail: classes of errors, the rules and the model that tell them, what each class calls for."""

from detectors.errors.classify import classify, is_transient
from detectors.errors.kinds import ErrorClass, Nature, Prescription, Verdict
from detectors.errors.retry_after import retry_after_s

__all__ = ["ErrorClass", "Nature", "Prescription", "Verdict", "classify", "is_transient", "retry_after_s"]
