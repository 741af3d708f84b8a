"""A client of TensorFlow Serving, by REST or gRPC; by REST it needs no TensorFlow."""
