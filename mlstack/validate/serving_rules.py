"""What KServe and Seldon Core refuse in their webhooks beyond the definitions of their kinds."""

from __future__ import annotations

from mlstack.objects.resources import quantity
from mlstack.validate.checks import (
    OperatorRules,
    at,
    between,
    choice,
    fits,
    joined,
    needed,
    one_of,
    says,
    unique,
)
from mlstack.validate.formats import Field, Problems, label_1035, shown

# --- KServe's InferenceServices ---

_KSERVE = "serving.kserve.io"
_FRAMEWORKS = (
    *("huggingface", "lightgbm", "model", "onnx", "paddle", "pmml", "pytorch", "sklearn"),
    *("tensorflow", "triton", "xgboost"),
)
_COMPONENTS = "spec.predictor|transformer|explainer?"
_CONTAINER = "kserve-container"
_MEBIBYTE = 2**20
_SPLIT = ("pvc", "oci")
"""Where a model that spans nodes can come from."""


def _annotation(root: Field, name: str) -> Field:
    return root.at("metadata", "annotations", name)


def _inference_service(root: Field) -> Problems:
    classes = ("hpa", "external", "keda", "none")
    yield from choice(*classes, unset=True)(_annotation(root, f"{_KSERVE}/autoscalerClass"))
    predictor = root.at("spec", "predictor")
    own = [f"`{name}`" for name in _FRAMEWORKS if predictor.at(name)]
    names = predictor.all("containers[].name")
    own += [f"container `{_CONTAINER}`" for name in names if name.text == _CONTAINER]
    if len(own) != 1:
        expected = f"must have one model or container `{_CONTAINER}`"
        yield predictor.says(f"{expected}, got {' and '.join(own) or 'none'}")
    for framework in predictor.all(f"{'|'.join(_FRAMEWORKS)}?"):
        yield from says("must not be set: the runtime names its container")(framework.at("name"))
    for component in root.all(_COMPONENTS):
        yield from _component(component)
        yield from _scaling(component, root)
    yield from _workers(root)
    yield from _canaries(root)


def _component(component: Field) -> Problems:
    low, high = component.at("minReplicas").number, component.at("maxReplicas").number
    low = 1 if low is None else low
    yield from at("minReplicas|maxReplicas|containerConcurrency", between(0))(component)
    if high and low > high:
        yield component.at("maxReplicas").says(f"must be at least `minReplicas` ({low}), got {high}")
    yield from at("logger?.mode", choice("all", "request", "response"))(component)
    yield from at("logger.storage?.path|parameters|key", needed)(component)
    containers = component.all("containers|initContainers[]")
    containers += component.all("workerSpec.containers|initContainers[]")
    for container in (*containers, *component.all("|".join((*_FRAMEWORKS, "art")))):
        for variable in container.all("env[].name"):
            if variable.text == "PYTHONPATH":
                yield variable.says("must not be `PYTHONPATH`")
    for container in containers:
        if container.at("name").text == "transformer-container":
            for variable in container.all("env[].name"):
                if variable.text == "STORAGE_URI":
                    yield variable.says("must not be `STORAGE_URI` in a transformer's container")
    yield from _storage_uris(component)


def _storage_uris(component: Field) -> Problems:
    """Several models are mounted at absolute paths with a common parent."""
    several = component.at("storageUris")
    if several and any(framework.at("storageUri") for framework in component.all("|".join(_FRAMEWORKS))):
        yield several.says("must not be set together with `storageUri`")
    parents = set()
    for entry in several.items:
        yield from needed(entry.at("uri"))
        path = entry.at("mountPath").text or "/mnt/models"
        if not path.startswith("/") or path == "/" or ".." in path:
            yield entry.at("mountPath").not_as("an absolute path below the root, without `..`")
        if not entry.at("uri").text.startswith("pvc://"):
            parents.add(path.strip("/").partition("/")[0])
    if len(parents) > 1:
        yield several.says("must have mount paths with a common parent")


def _scaling(component: Field, root: Field) -> Problems:
    """What a metric may be depends on what scales: Kubernetes' autoscaler, KEDA or Knative."""
    metric, target = component.at("scaleMetric"), component.at("scaleTarget")
    is_standard = _annotation(root, f"{_KSERVE}/deploymentMode").text == "Standard"
    scaler = _annotation(root, f"{_KSERVE}/autoscalerClass").text if is_standard else "kpa"
    if _annotation(root, "autoscaling.knative.dev/class").text == "hpa.autoscaling.knative.dev":
        scaler = scaler if is_standard else "hpa"
    if scaler == "hpa":
        yield from choice("cpu", "memory", unset=True)(metric)
        number = target.number
        if metric.text in ("", "cpu") and number is not None and not 1 <= number <= 100:
            yield target.says(f"must be 1 to 100 percent, got {number}")
        for source in component.all("autoScaling.metrics[]"):
            yield from at("type", choice("Resource"))(source)
            yield from needed(source.at("resource"))
    elif scaler == "keda":
        yield from says("must not be set for KEDA: use `autoScaling.metrics`")(metric)
        for source in component.all("autoScaling.metrics[]"):
            yield from _keda_metric(source)
    elif scaler == "kpa":
        only = "must only be set with `serving.kserve.io/deploymentMode: Standard`"
        if _annotation(root, f"{_KSERVE}/deploymentMode").text == "Knative":
            yield from says(only)(component.at("deploymentStrategy"))
            yield from choice("concurrency", "rps", unset=True)(metric)
            if metric.text == "rps":
                yield from between(1)(target)


def _keda_metric(metric: Field) -> Problems:
    kinds = {"Resource": "resource", "External": "external", "PodMetric": "podmetric"}
    yield from choice(*kinds)(metric.at("type"))
    source = metric.at(kinds.get(metric.at("type").text, "type"))
    yield from needed(source)
    if metric.at("type").text == "Resource":
        is_memory, amount = source.at("name").text == "memory", source.at("target", "averageValue")
        yield from choice("cpu", "memory")(source.at("name"))
        allowed = ("Utilization", "AverageValue") if is_memory else ("Utilization",)
        yield from choice(*allowed)(source.at("target", "type"))
        if is_memory and amount and (quantity(amount.value) or 0) < _MEBIBYTE:
            yield amount.not_as("at least `1Mi`")
    else:
        yield from at("metric.query", needed)(source)
        yield from at("target.value", needed)(source)


def _workers(root: Field) -> Problems:
    """A model across nodes: one container, sizes beside it, a model from a volume or image, no autoscaler."""
    predictor = root.at("spec", "predictor")
    workers, model = predictor.at("workerSpec"), predictor.at("model")
    if not workers:
        return
    if len(workers.at("containers").items) > 1:
        yield workers.at("containers").says("must have one container")
    yield from at("pipelineParallelSize", between(1))(workers)
    yield from at("tensorParallelSize", between(1))(workers)
    if not model:
        return
    for variable in model.all("env[].name"):
        if variable.text in ("PIPELINE_PARALLEL_SIZE", "TENSOR_PARALLEL_SIZE"):
            yield variable.says("must not be set: give the size in `workerSpec`")
    uri = model.at("storageUri")
    if uri.text.partition("://")[0] not in _SPLIT:
        yield (
            uri.not_as("an address that starts with `pvc://` or `oci://`") if uri else uri.says("is required")
        )
    scaler = _annotation(root, f"{_KSERVE}/autoscalerClass")
    if scaler.text != "none":
        yield scaler.says("must be `none` with a `workerSpec`")


def _canaries(root: Field) -> Problems:
    canaries, stable = root.at("spec", "canary"), root.at("spec", "predictor")
    if not canaries.items:
        return
    if _annotation(root, f"{_KSERVE}/deploymentMode").text != "Standard":
        yield canaries.says("needs the annotation `serving.kserve.io/deploymentMode: Standard`")
    yield from unique("name", "spec.canary[].predictor.name")(root)
    lowest = stable.at("minReplicas").number
    for canary in canaries.items:
        own = canary.at("predictor")
        yield from needed(own.at("name"))
        yield from at("trafficPercent", between(0, 100))(canary)
        if own.at("name").text and own.at("name").text == stable.at("name").text:
            yield own.at("name").says("must differ from the stable predictor's")
        fixed = "maxReplicas|scaleTarget|scaleMetric|autoScaling|workerSpec"
        yield from at(fixed, says("must not be set for a canary"))(own)
        yield from at("minReplicas", between(0, 1 if lowest is None else lowest))(own)
    total = sum(percent.number or 0 for percent in root.all("spec.canary[].trafficPercent"))
    if total > 100:
        yield canaries.says(f"must have at most 100 percent of traffic together, got {total}")


# --- graphs, trained models, services of language models ---

_TARGETS = ("nodeName", "serviceName", "serviceUrl")


def _graph(nodes: Field) -> Problems:
    yield from needed(nodes.at("root"))
    for _, node in nodes.entries:
        yield from unique("step", "steps[].name")(node)
        for step in node.at("steps").items:
            yield from one_of("target", *_TARGETS)(step)
        if node.at("routerType").text == "Splitter":
            weights = node.all("steps[].weight")
            for weight in weights:
                yield from needed(weight)
            total = sum(weight.number or 0 for weight in weights)
            if total != 100 and all(weights):
                yield node.says(f"must have weights that add up to 100, got {total}")


def _undotted(own_name: Field) -> Problems:
    if "." in own_name.text:
        yield own_name.not_as("letters, digits and `-` without dots")


def _model_address(uri: Field) -> Problems:
    protocols = ("s3://", "gs://", "https://", "http://")
    if not uri.text.startswith(protocols):
        yield uri.not_as(f"an address that starts with {joined(protocols, ' or ')}")


def _llm_service(root: Field) -> Problems:
    for workload in root.all("spec") + root.all("spec.prefill?"):
        yield from _parallelism(workload)
    route, gateway = root.at("spec", "router", "route", "http"), root.at("spec", "router", "gateway")
    if route.at("refs").items and route.at("spec"):
        yield route.says("must have either `refs` or a `spec`")
    if route.at("refs").items and gateway and not gateway.at("refs").items:
        yield route.at("refs").says("must not be set with a managed gateway: give `spec.router.gateway.refs`")
    scheduler = root.at("spec", "router", "scheduler")
    yield from between(1)(scheduler.at("replicas"))
    yield from at("config?", one_of("source", "inline", "ref"))(scheduler)
    yield from at("config.ref?.name", needed)(scheduler)
    lora, base = root.at("spec", "model", "lora"), root.at("spec", "model", "name").text
    yield from at("maxRank|maxAdapters|maxCpuAdapters", between(1))(lora)
    yield from unique("adapter", "adapters[].name")(lora)
    for adapter in lora.all("adapters[].name"):
        yield from needed(adapter)
        if adapter.text in (".", "..", base or root.at("metadata", "name").text):
            yield adapter.says(f"must not be `.`, `..` or the model's own name, got {shown(adapter.value)}")


def _parallelism(workload: Field) -> Problems:
    sizes = workload.at("parallelism")
    pipeline, data, local = (sizes.at(name) for name in ("pipeline", "data", "dataLocal"))
    if workload.at("worker") and not (pipeline or data or local):
        yield workload.at("worker").says("needs `parallelism` with `pipeline`, or `data` and `dataLocal`")
    if pipeline and (data or local):
        yield sizes.says("must not have both `pipeline` and `data`")
    if bool(data) != bool(local):
        yield (local if data else data).says(f"is required with `{'data' if data else 'dataLocal'}`")
    for size in (pipeline, data, local):
        yield from between(1)(size)


# --- Seldon Core ---

_PLAIN_SERVERS = ("HUGGINGFACE_SERVER", "MLFLOW_SERVER", "SKLEARN_SERVER", "XGBOOST_SERVER")
_BUILT_IN = ("SIMPLE_MODEL", "SIMPLE_ROUTER", "RANDOM_ABTEST", "AVERAGE_COMBINER")
_KAFKA = ("KAFKA_BROKER", "KAFKA_INPUT_TOPIC", "KAFKA_OUTPUT_TOPIC")


def _seldon(spec: Field) -> Problems:
    yield from choice("seldon", "tensorflow", "kfserving", "v2", unset=True)(spec.at("protocol"))
    yield from choice("rest", "grpc", unset=True)(spec.at("transport"))
    yield from choice("rpc", "kafka", unset=True)(spec.at("serverType"))
    yield from needed(spec.at("predictors"))
    yield from unique("predictor", "predictors[].name")(spec)
    yield from _seldon_traffic(spec.at("predictors"))
    names = [predictor.at("annotations", "seldon.io/svc-name") for predictor in spec.at("predictors").items]
    for position, service in enumerate(names):
        if service.text and service.text in [other.text for other in names[:position]]:
            yield service.says(f"service {shown(service.value)} is used twice")
    transports = set()
    for predictor in spec.at("predictors").items:
        units = _units(predictor.at("graph"))
        transports |= {unit.at("endpoint", "type").text.lower() for unit in units} - {""}
        if predictor.at("annotations", "seldon.io/no-engine") and len(units) > 1:
            yield predictor.at("graph").says("must have one unit with the annotation `seldon.io/no-engine`")
        if spec.at("serverType").text == "kafka":
            given = [variable.text for variable in predictor.all("svcOrchSpec.env[].name")]
            if missing := [name for name in _KAFKA if name not in given]:
                yield predictor.at("svcOrchSpec", "env").says(f"must have {joined(missing, ' and ')}")
        for unit in units:
            yield from _unit(unit, predictor, spec.at("protocol").text)
    if len(transports) > 1 or transports - {
        spec.at("transport").text or transport for transport in transports
    }:
        yield spec.says("must not mix types of endpoints: give `transport` alone")


def _units(unit: Field) -> list[Field]:
    return [unit, *(inner for child in unit.at("children").items for inner in _units(child))]


def _unit(unit: Field, predictor: Field, protocol: str) -> Problems:
    """Every unit of a graph has a container of its name, or a server that comes with Seldon and a model."""
    server, own_name = unit.at("implementation").text, unit.at("name").text
    containers = [name.text for name in predictor.all("componentSpecs[].spec.containers[].name")]
    if server in ("", "UNKNOWN_IMPLEMENTATION"):
        if own_name not in containers:
            offered = f"one of the containers {joined(containers)}" if containers else "that of a container"
            yield unit.at("name").not_as(offered)
    elif server not in _BUILT_IN:
        if server != "HUGGINGFACE_SERVER" and not unit.at("modelUri").text:
            yield unit.at("modelUri").says(f"is required with `implementation: {server}`")
        if protocol == "tensorflow" and server in _PLAIN_SERVERS:
            yield unit.at("implementation").says(f"`{server}` does not know `protocol: tensorflow`")
    yield from at("logger?.mode", needed)(unit)


def _seldon_traffic(predictors: Field) -> Problems:
    shadows = [predictor for predictor in predictors.items if predictor.at("shadow").value is True]
    for shadow in shadows[1:]:
        yield shadow.at("shadow").says("must be set for one predictor alone")
    if shadows and len(predictors.items) == 1:
        yield shadows[0].at("shadow").says("must not be set for the only predictor")
    for shadow in shadows:
        yield from between(0, 100)(shadow.at("traffic"))
    served = [predictor for predictor in predictors.items if predictor not in shadows]
    total = sum(predictor.at("traffic").number or 0 for predictor in served)
    if total != 100 and (len(served) > 1 or 0 < total < 100):
        yield predictors.says(f"must have traffic that adds up to 100, got {total}")


# --- the table ---

_SOURCE = "kserve/kserve v0.20.0, pkg/apis/serving"
SERVING_RULES = (
    OperatorRules(
        "KServe 0.20",
        f"{_SOURCE}/v1beta1/inference_service_validation.go, component.go",
        (f"{_KSERVE}/InferenceService",),
        (at("metadata.name", fits(label_1035)), _inference_service),
    ),
    OperatorRules(
        "KServe 0.20",
        f"{_SOURCE}/v1alpha1/inference_graph_validation.go",
        (f"{_KSERVE}/InferenceGraph",),
        (at("metadata.name", fits(label_1035)), at("spec.nodes", _graph)),
    ),
    OperatorRules(
        "KServe 0.20",
        f"{_SOURCE}/v1alpha1/trainedmodel_webhook.go, pkg/agent/storage/provider.go",
        (f"{_KSERVE}/TrainedModel",),
        (at("metadata.name", _undotted), at("spec.model.storageUri", _model_address)),
    ),
    OperatorRules(
        "KServe 0.20",
        f"{_SOURCE}/v1alpha2/llm_inference_service_validation.go",
        (f"{_KSERVE}/LLMInferenceService",),
        (_llm_service,),
    ),
    OperatorRules(
        "Seldon Core 1.18",
        "SeldonIO/seldon-core v1.18.2, operator/apis/machinelearning.seldon.io/v1",
        ("machinelearning.seldon.io/SeldonDeployment",),
        (at("spec", _seldon),),
    ),
)
