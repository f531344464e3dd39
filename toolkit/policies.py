"""The rules and settings of a run: approval, permissions, limits, stop conditions, caches, compaction, middleware."""

from toolkit.calls.approval import Abort, Approval, ApprovalHook, ApprovalRequest, Approve, Defer, Deny, Modify
from toolkit.calls.caching import Cache, MemoryCache, SqliteCache
from toolkit.calls.options import ToolRetryConfig
from toolkit.calls.output import ResultStore
from toolkit.calls.permissions import Decision, Permissions, Rule, allow, ask, deny
from toolkit.calls.policy import CallConfig, OutputLimits, Timeouts
from toolkit.loop.approvals import PendingApproval
from toolkit.loop.budget import UsageLimits
from toolkit.loop.compaction import keep_last, mask_old_results, summarize
from toolkit.loop.config import (
    AnswerFormat,
    Batched,
    Compaction,
    Execution,
    LoopLimits,
    Parallel,
    ProviderRetryConfig,
    Sequential,
)
from toolkit.loop.depth import LoopDepth
from toolkit.loop.detection import LoopDetectionConfig
from toolkit.loop.feeds import InjectMessages
from toolkit.loop.middleware import (
    AfterToolExecution,
    AfterToolExecutionUpdate,
    BeforeToolExecution,
    BeforeToolExecutionUpdate,
    CallInfo,
    CallProceed,
    Delta,
    DeltaHook,
    Middleware,
    Refusal,
    ReplyPolicy,
    RequestInfo,
    RequestProceed,
    RunInfo,
    RunProceed,
    ToolExecutionHooks,
)
from toolkit.loop.prompt import Decisions
from toolkit.loop.reply_policies import SteeredRetries, ToolOrder
from toolkit.loop.steering import Steering
from toolkit.loop.stopping import (
    Continue,
    Stop,
    StopContext,
    StopDecision,
    StopWhen,
    and_,
    or_,
    stop_after,
    token_budget,
    when_called,
)
from toolkit.tools.registry import Finding

__all__ = [
    "Abort",
    "AfterToolExecution",
    "AfterToolExecutionUpdate",
    "AnswerFormat",
    "Approval",
    "ApprovalHook",
    "ApprovalRequest",
    "Approve",
    "Batched",
    "BeforeToolExecution",
    "BeforeToolExecutionUpdate",
    "Cache",
    "CallConfig",
    "CallInfo",
    "CallProceed",
    "Compaction",
    "Continue",
    "Decision",
    "Decisions",
    "Defer",
    "Delta",
    "DeltaHook",
    "Deny",
    "Execution",
    "Finding",
    "InjectMessages",
    "LoopDepth",
    "LoopDetectionConfig",
    "LoopLimits",
    "MemoryCache",
    "Middleware",
    "Modify",
    "OutputLimits",
    "Parallel",
    "PendingApproval",
    "Permissions",
    "ProviderRetryConfig",
    "Refusal",
    "ReplyPolicy",
    "RequestInfo",
    "RequestProceed",
    "ResultStore",
    "Rule",
    "RunInfo",
    "RunProceed",
    "Sequential",
    "SqliteCache",
    "SteeredRetries",
    "Steering",
    "Stop",
    "StopContext",
    "StopDecision",
    "StopWhen",
    "Timeouts",
    "ToolExecutionHooks",
    "ToolOrder",
    "ToolRetryConfig",
    "UsageLimits",
    "allow",
    "and_",
    "ask",
    "deny",
    "keep_last",
    "mask_old_results",
    "or_",
    "stop_after",
    "summarize",
    "token_budget",
    "when_called",
]
