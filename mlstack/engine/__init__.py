"""The steps of a deploy that use cases share."""
