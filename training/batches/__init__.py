"""Batches of what a corpus holds, as `tf.data` pipelines."""
