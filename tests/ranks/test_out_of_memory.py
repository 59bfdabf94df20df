"""An allocation that failed is known by what is said of it, whoever says it."""

import pytest
import torch

from worldsize.ranks.memory import is_out_of_memory

SAID = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 1",
    "CUDA error: out of memory",
    "NCCL error: unhandled cuda error; Cuda failure 2 'out of memory'",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
    "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
    "could not create a memory object",
    "std::bad_alloc",
)


@pytest.mark.parametrize("said", SAID)
def test_what_libraries_say_when_memory_is_out(said: str) -> None:
    assert is_out_of_memory(RuntimeError(said))


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory."), MemoryError()])
def test_exceptions_that_are_of_that_type(error: BaseException) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        ValueError("out of memory"),
    ],
)
def test_other_mistakes_are_not(error: BaseException) -> None:
    assert not is_out_of_memory(error)
