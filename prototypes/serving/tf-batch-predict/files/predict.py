"""Predict with a SavedModel what files hold; every file gets a file of results and, if need be, one of errors."""

import argparse
import csv
import json

import numpy as np
import tensorflow as tf


def entries(path, kind):
    """Give what a file holds, a record or a line each."""
    if kind.startswith("tfrecord"):
        compression = "GZIP" if kind == "tfrecord_gzip" else ""
        for record in tf.data.TFRecordDataset(path, compression_type=compression):
            yield record.numpy()
    else:
        with tf.io.gfile.GFile(path) as lines:
            yield from (line for line in lines if line.strip())


def example(entry, kind):
    """Give a record or line as the model takes it."""
    if kind == "csv":
        return [float(field) for field in next(csv.reader([entry]))]
    return json.loads(entry) if kind == "json" else entry


def batches(items, size):
    """Give lists of at most `size` items."""
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def predict(function, inputs, batch):
    """Give a prediction for each example of a batch: names of outputs and plain values."""
    if isinstance(batch[0], dict):
        columns = {name: [item[name] for item in batch] for name in inputs}
    elif len(inputs) == 1:
        columns = {next(iter(inputs)): batch}
    else:
        raise ValueError(f"the model takes {sorted(inputs)}: examples must be objects with these names")
    tensors = {name: tf.constant(column, dtype=inputs[name].dtype) for name, column in columns.items()}
    outputs = {name: tensor.numpy() for name, tensor in function(**tensors).items()}
    return [{name: plain(values[index]) for name, values in outputs.items()} for index in range(len(batch))]


def plain(value):
    """Give a value as JSON has it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return np.asarray(value).tolist()


def main():
    """Predict every file; the exit code says whether something could not be predicted at all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--input", action="append", required=True)
    parser.add_argument("--input-format", required=True)
    parser.add_argument("--result-prefix", required=True)
    parser.add_argument("--error-prefix", required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    options = parser.parse_args()

    model = tf.saved_model.load(options.model_path)
    function = model.signatures["serving_default"]
    inputs = function.structured_input_signature[1]
    paths = sorted({path for pattern in options.input for path in tf.io.gfile.glob(pattern)})
    if not paths:
        raise SystemExit(f"no file matches {options.input}")
    for prefix in (options.result_prefix, options.error_prefix):
        tf.io.gfile.makedirs(prefix.rpartition("/")[0])
    done = failed = 0
    for number, path in enumerate(paths):
        suffix = f"-{number:05d}-of-{len(paths):05d}"
        errors = []
        with tf.io.gfile.GFile(options.result_prefix + suffix, "w") as results:
            for batch in batches(entries(path, options.input_format), options.batch_size):
                try:
                    given = [example(entry, options.input_format) for entry in batch]
                    for prediction in predict(function, inputs, given):
                        results.write(json.dumps(prediction) + "\n")
                    done += len(batch)
                except (KeyError, TypeError, ValueError, tf.errors.OpError) as error:
                    errors.append({"file": path, "examples": len(batch), "error": str(error)})
                    failed += len(batch)
        if errors:
            with tf.io.gfile.GFile(options.error_prefix + suffix, "w") as file:
                file.write("".join(json.dumps(error) + "\n" for error in errors))
        print(f"{path}: {done} predicted, {failed} failed so far", flush=True)
    if failed and not done:
        raise SystemExit(f"nothing could be predicted; see {options.error_prefix}*")


if __name__ == "__main__":
    main()
