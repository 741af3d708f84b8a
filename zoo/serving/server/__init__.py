"""TensorFlow Serving's REST interface for any SavedModel, in Python: for laptops, demos and tests."""

from zoo.extras import needs

with needs("serve"):  # all of it, before TensorFlow takes its seconds to start
    import prometheus_client  # noqa: F401
    import starlette  # noqa: F401
    import uvicorn  # noqa: F401
