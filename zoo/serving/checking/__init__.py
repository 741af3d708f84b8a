"""What a stock TensorFlow Serving would refuse in a SavedModel, or stumble over, found without loading it."""
