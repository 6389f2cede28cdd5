"""What a demo downloads, made here: pictures, labels, weights of known models.

Weights are random, of the architecture that the demo names; models of more than a few hundred million
parameters are smaller ones of the same architecture (``SMALLER``).
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import tempfile
import types
import urllib.request
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.utils.model_zoo

WEIGHTS = b"random weights"
LABELS = 1000
VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<pad>", "<unk>", "<mask>")
WORDS = (
    "a am and english from german house i in is it jim keller main my name of that the to translate was with"
)
SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ENDS = {"bos_token": "<s>", "eos_token": "</s>"}

# What configurations of transformers have where their defaults are another model's than the demo's.
SIZES: dict[str, dict[str, Any]] = {
    "AlbertConfig": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
    "PerceiverConfig": {
        "num_latents": 512,
        "d_latents": 1024,
        "num_self_attends_per_block": 6,
        "num_cross_attention_heads": 1,
        "num_blocks": 8,
        "image_size": 224,
    },
    "T5Config": {"decoder_start_token_id": 0},
}
# The same of models that are too large for two cores: what they have less of.
_FEW_LAYERS = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "vocab_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
}
SMALLER: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("LlamaConfig", "MistralConfig", "Olmo3Config", "Qwen3Config"), _FEW_LAYERS),
    "CodeGenConfig": {"n_embd": 256, "n_layer": 4, "n_head": 4, "rotary_dim": 32},
    "FuyuConfig": {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2},
    "GPTNeoConfig": {"hidden_size": 768, "num_layers": 4, "attention_types": [[["global", "local"], 2]]},
    "OPTConfig": {"num_hidden_layers": 4},
    "PhiConfig": _FEW_LAYERS,
    "Qwen2Config": _FEW_LAYERS,
    "RWConfig": {"hidden_size": 256, "n_layer": 2, "n_head": 4},
    "XGLMConfig": {"d_model": 256, "ffn_dim": 512, "num_layers": 4, "attention_heads": 4},
}


class Weights(dict[str, torch.Tensor]):
    """Stands for the weights of a model, which keeps its random ones; the last is of as many classes."""

    def __init__(self) -> None:
        super().__init__({"fc.bias": torch.zeros(LABELS)})


notes: list[str] = []
"""What was smaller than in the demo."""


def picture() -> Any:
    """Return a picture of 640 x 480: soft colours with some noise."""
    image = importlib.import_module("PIL.Image")
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(1, 3, 6, 8, generator=generator)
    soft = torch.nn.functional.interpolate(coarse, (480, 640), mode="bilinear")[0]
    noisy = (soft + 0.05 * torch.randn(soft.shape, generator=generator)).clamp(0, 1)
    return image.fromarray((noisy * 255).to(torch.uint8).permute(1, 2, 0).numpy())


def contents(address: Any) -> bytes:
    """Return what an address gives: labels, a model of ONNX, weights, or a picture."""
    url = getattr(address, "full_url", address)
    if url.partition("?")[0].endswith(".txt"):
        # Two columns, as some lists of labels have.
        return "\n".join(f"{number}\tlabel {number}" for number in range(LABELS)).encode()
    if ".onnx" in url:
        return onnx_model(url)
    if url.endswith((".h5", ".pth", ".pt", ".pth.tar")):
        return WEIGHTS
    if url.endswith((".jpg", ".jpeg", ".png", ".JPEG")):
        made = io.BytesIO()
        picture().save(made, "PNG")
        return made.getvalue()
    raise ConnectionError(f"nothing stands for {url}")


def onnx_model(url: str) -> bytes:
    """Return a model of ONNX of the architecture that its address names."""
    if "resnet50" in url:
        net = importlib.import_module("torchvision.models").resnet50()
    elif "dla34" in url:
        net = importlib.import_module("cv_demos.dla.utils.model").dla34()
    else:
        raise ConnectionError(f"nothing stands for {url}")
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        torch.onnx.export(net.eval(), (torch.rand(1, 3, 224, 224),), file.name, dynamo=False)
        return Path(file.name).read_bytes()


def install(folder_of_hubs: Path | None) -> None:
    """Let the demo of this process find these in place of the network."""
    _network()
    _torch(folder_of_hubs)
    _datasets()
    for name, change in CHANGES.items():
        with contextlib.suppress(ImportError):
            change(importlib.import_module(name))


def _network() -> None:
    def answer(url: str, *args: Any, **kwargs: Any) -> Any:
        found = contents(url)
        return SimpleNamespace(
            content=found, raw=io.BytesIO(found), text=found.decode("latin1"), status_code=200, ok=True
        )

    def retrieve(url: str, path: str, *args: Any) -> None:
        Path(path).write_bytes(contents(url))

    try:
        importlib.import_module("requests")
    except ImportError:
        sys.modules["requests"] = types.ModuleType("requests")
    sys.modules["requests"].get = answer  # type: ignore[attr-defined]
    urllib.request.urlopen = lambda url, *args, **kwargs: io.BytesIO(contents(url))
    urllib.request.urlretrieve = retrieve


def _torch(folder_of_hubs: Path | None) -> None:
    load, load_state = torch.load, torch.nn.Module.load_state_dict

    def loaded(path: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(path, str) and Path(path).read_bytes() == WEIGHTS:
            return Weights()
        return load(path, *args, **kwargs)

    def taken(self: torch.nn.Module, state: Any, *args: Any, **kwargs: Any) -> Any:
        return None if isinstance(state, Weights) else load_state(self, state, *args, **kwargs)

    def of_a_hub(place: str, model: str, *args: Any, **kwargs: Any) -> Any:
        owner, _, name = place.partition(":")[0].partition("/")
        if (owner, name) in (("pytorch", "vision"), ("facebookresearch", "WSL-Images")):
            models = importlib.import_module("torchvision.models")
            return models.get_model(model.removesuffix("_wsl"), weights=None)
        source = None if folder_of_hubs is None else folder_of_hubs / f"{owner}+{name}"
        if source is None or not source.is_dir():
            raise ConnectionError(f"the sources of {owner}/{name} are not here")
        return hub_load(str(source), model, *args, **{**kwargs, "pretrained": False}, source="local")

    hub_load = torch.hub.load
    for module in (torch.hub, torch.utils.model_zoo):
        name = "load_url" if hasattr(module, "load_url") else "load_state_dict_from_url"
        setattr(module, name, lambda *args, **kwargs: Weights())
    torch.load = loaded
    torch.hub.load = of_a_hub
    torch.nn.Module.load_state_dict = taken


def _alike(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Make a model of the same weights each time, as those that are downloaded are."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return make(*args, **kwargs)


def _without_weights(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(name: str, *args: Any, **kwargs: Any) -> Any:
        kwargs = {**kwargs, "pretrained": False} if "pretrained" in kwargs else kwargs
        return _alike(make, name.removeprefix("hf_hub:timm/"), *args, **kwargs)

    return made


def _timm(module: ModuleType) -> None:
    module.create_model = _without_weights(module.create_model)


def _pytorchcv(module: ModuleType) -> None:
    module.get_model = _without_weights(module.get_model)


def _torchvision(module: ModuleType) -> None:
    for name in module.list_models(module=module):
        make = getattr(module, name)
        setattr(module, name, _builder(make))


def _builder(make: Callable[..., Any]) -> Callable[..., Any]:
    left_out = ("pretrained", "weights")
    return lambda *args, **kwargs: _alike(
        make, **{key: value for key, value in kwargs.items() if key not in left_out}
    )


def _datasets() -> None:
    module: Any = ModuleType("datasets")
    module.__spec__ = ModuleSpec("datasets", None)
    sys.modules["datasets"] = module
    module.load_dataset = _dataset


def _dataset(name: str, *args: Any, **kwargs: Any) -> Any:
    if "asr" in name:
        waves = torch.sin(torch.arange(48000) * torch.linspace(0.01, 0.3, 48000)).numpy()
        return [{"audio": {"array": waves, "sampling_rate": 16000}}]
    image = picture().convert("L").resize((28, 28)) if "mnist" in name else picture()
    samples = [{"image": image, "label": 0}]
    return samples if "split" in kwargs else {"train": samples, "test": samples}


def _vgg(module: ModuleType) -> None:
    module.VGG.from_pretrained = classmethod(lambda cls, name, *args, **kwargs: cls.from_name(name))


def _segmentation(module: ModuleType) -> None:
    make = module.Unet
    module.Unet = lambda *args, **kwargs: make(*args, **{**kwargs, "encoder_weights": None})


def _xray(module: ModuleType) -> None:
    module.models.get_model = lambda name: module.models.DenseNet(num_classes=18).eval()


def _transformers(module: ModuleType) -> None:
    base: Any = module
    base.PretrainedConfig.from_pretrained = classmethod(lambda cls, *args, **kwargs: configuration(cls))
    base.PreTrainedModel.from_pretrained = classmethod(_model)
    base.PreTrainedTokenizerBase.from_pretrained = classmethod(lambda cls, *a, **k: tokenizer(cls))
    base.AutoModelForCausalLM.from_pretrained = _language_model
    base.AutoTokenizer.from_pretrained = lambda *args, **kwargs: tokenizer(base.GPT2Tokenizer)
    for name in ("AutoImageProcessor", "AutoFeatureExtractor"):
        if hasattr(base, name):
            getattr(base, name).from_pretrained = _image_processor
    mixin = importlib.import_module("transformers.image_processing_base").ImageProcessingMixin
    mixin.from_pretrained = classmethod(lambda cls, *args, **kwargs: cls())
    for name in AUTOMATIC:
        getattr(base, name).from_pretrained = _automatic(name)
    base.ProcessorMixin.from_pretrained = classmethod(_processor)


AUTOMATIC = {
    "AutoModelForImageClassification": "ForImageClassification",
    "AutoModelForMaskedLM": "ForMaskedLM",
    "AutoModelForSequenceClassification": "ForSequenceClassification",
    "AutoModelForSeq2SeqLM": "ForConditionalGeneration",
}
FAMILIES = {
    "mobilenet_v1": "MobileNetV1",
    "mobilenet_v2": "MobileNetV2",
    "xlm-roberta": "XLMRoberta",
    "roberta": "Roberta",
    "squeezebert": "SqueezeBert",
    "t5": "T5",
}


def _automatic(name: str) -> Callable[..., Any]:
    def made(path: str, *args: Any, config: Any = None, **kwargs: Any) -> Any:
        transformers: Any = importlib.import_module("transformers")
        family = next(family for key, family in FAMILIES.items() if key in path)
        return getattr(transformers, family + AUTOMATIC[name]).from_pretrained(path, config=config, **kwargs)

    return made


LANGUAGE_MODELS = {"llama": "Llama", "inistral": "Mistral", "olmo-3": "Olmo3", "qwen": "Qwen3"}


def _language_model(path: str, *args: Any, **kwargs: Any) -> Any:
    transformers: Any = importlib.import_module("transformers")
    family = next(family for key, family in LANGUAGE_MODELS.items() if key in path.lower())
    made = getattr(transformers, f"{family}ForCausalLM").from_pretrained(path, **kwargs)
    dtype = kwargs.get("torch_dtype", kwargs.get("dtype"))
    return made if dtype is None else made.to(dtype)


def configuration(cls: Any) -> Any:
    """Return the configuration of a demo's model."""
    name = cls.__name__
    if name in SMALLER:
        notes.append(f"{name}: {', '.join(f'{key} {value}' for key, value in SMALLER[name].items())}")
    return cls(**{**SIZES.get(name, {}), **SMALLER.get(name, {})})


def _model(cls: Any, path: str, *args: Any, config: Any = None, **kwargs: Any) -> Any:
    config = configuration(cls.config_class) if config is None else config
    if "ForImageClassification" in cls.__name__:
        config.num_labels = LABELS
    for key, value in kwargs.items():
        if key in ("torchscript", "use_cache", "return_dict"):
            setattr(config, key, value)
    return _alike(cls, config).eval()


def tokenizer(cls: Any) -> Any:
    """Return a tokenizer that knows a few hundred words; of BERT's family one of its class."""
    transformers: Any = importlib.import_module("transformers")
    words = [f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789"]
    words += [word.removeprefix("##") for word in words] + list(".,!?':()-@/")
    vocabulary = list(dict.fromkeys([*VOCABULARY, *words, *WORDS.split()]))
    if issubclass(cls, transformers.BertTokenizer):
        with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
            file.write("\n".join(vocabulary))
        return cls(file.name)
    tokenizers: Any = importlib.import_module("tokenizers")
    of = tokenizers.models.WordPiece(vocab={word: n for n, word in enumerate(vocabulary)}, unk_token="[UNK]")
    made = tokenizers.Tokenizer(of)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.normalizer = tokenizers.normalizers.BertNormalizer()
    made.decoder = tokenizers.decoders.WordPiece()
    made.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokens = {f"{key}_token": value for key, value in SPECIAL.items()} | ENDS
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, **tokens, model_max_length=512, model_input_names=cls.model_input_names
    )


def _image_processor(path: str, *args: Any, **kwargs: Any) -> Any:
    transformers: Any = importlib.import_module("transformers")
    return transformers.SegformerImageProcessor() if "nvidia/" in path else transformers.ViTImageProcessor()


def _processor(cls: Any, path: str, *args: Any, **kwargs: Any) -> Any:
    transformers: Any = importlib.import_module("transformers")
    if "whisper" in path:
        words = tokenizer(transformers.GPT2Tokenizer)
        # A method of Whisper's own, which needs its tokens of times.
        words._decode_asr = lambda outputs, **kwargs: (words.decode(outputs[0]["tokens"][0]), {})
        return SimpleNamespace(feature_extractor=transformers.WhisperFeatureExtractor(), tokenizer=words)
    made = cls.__new__(cls)  # it would refuse a tokenizer of another class
    is_vilt = "vilt" in path
    made.tokenizer = tokenizer(transformers.BertTokenizer if is_vilt else transformers.GPT2Tokenizer)
    made.image_processor = getattr(transformers, f"{'Vilt' if is_vilt else 'CLIP'}ImageProcessor")()
    made.chat_template = None
    return made


CHANGES: dict[str, Callable[[ModuleType], None]] = {
    "torchvision.models": _torchvision,
    "timm": _timm,
    "pytorchcv.model_provider": _pytorchcv,
    "vgg_pytorch": _vgg,
    "segmentation_models_pytorch": _segmentation,
    "torchxrayvision": _xray,
    "transformers": _transformers,
}
"""By the package: what changes it."""
