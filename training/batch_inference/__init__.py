"""Inference with an exported model on whole files, which `zoo batch` runs. `infer` is the place to begin.

1. `plan` finds out and checks what is to be done, before the work begins: the signature (`signatures`), the input
   files, their columns, and the chunks into which they are cut.
2. `driver` is a process with a pipeline of Apache Beam. Its workers read the chunks (`rows`), call the model, and write
   the answers in parts (`parts`).
3. `infer` starts the driver, looks after it, and joins the parts to one file.
"""
