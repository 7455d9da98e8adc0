"""Loading, checking, de-duplicating and filtering problems."""
