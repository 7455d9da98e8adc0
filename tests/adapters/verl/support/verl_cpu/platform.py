"""The CPU in the place of an accelerator."""

import os
import types
from contextlib import nullcontext

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


class _Device(str):
    """``cpu`` for ``.to()``, and the index 0 where verl writes it behind a device's name."""

    def __format__(self, spec):
        return "0"


def _nothing(*_, **__):
    return None


def _zero(*_, **__):
    return 0


_MODULE = types.SimpleNamespace(
    __name__="cpu",
    Stream=torch.cpu.Stream,
    current_device=_zero,
    current_stream=torch.cpu.current_stream,
    device_count=lambda: 1,
    empty_cache=_nothing,
    get_device_name=lambda *_: "cpu",
    get_rng_state=torch.get_rng_state,
    ipc_collect=_nothing,
    is_available=lambda: True,
    manual_seed=torch.manual_seed,
    manual_seed_all=torch.manual_seed,
    max_memory_allocated=_zero,
    max_memory_reserved=_zero,
    mem_get_info=lambda *_: (2**33, 2**34),
    memory=types.SimpleNamespace(),
    memory_allocated=_zero,
    memory_reserved=_zero,
    set_device=_nothing,
    set_per_process_memory_fraction=_nothing,
    set_rng_state=torch.set_rng_state,
    stream=torch.cpu.stream,
    synchronize=_nothing,
)


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    device_name = vendor_name = "cpu"
    device_module = _MODULE

    def is_available(self):
        return True

    def is_platform_available(self, use_smi_check=False):
        return os.environ.get("VERL_PLATFORM") == "cpu"

    def current_device(self):
        return _Device("cpu")

    def device_count(self):
        return 1

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    manual_seed_all = manual_seed
    set_device = synchronize = set_allocator_settings = empty_cache = _nothing
    profiler_start = profiler_stop = cudart = _nothing

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        # verl asks for "cpu:gloo,<device>:<this>", which torch refuses where the device is the CPU; a group that
        # exists is kept.
        import torch.distributed as dist

        if not dist.is_initialized() and {"RANK", "MASTER_ADDR"} <= os.environ.keys():
            dist.init_process_group("gloo")
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    def nvtx_range(self, msg):
        return nullcontext()

    def ray_resource_name(self):
        return "GPU"

    def ray_noset_envvars(self):
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self):
        return False
