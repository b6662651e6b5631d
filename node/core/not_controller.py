"""What a node that is not the active controller answers to what only the controller can do."""

from __future__ import annotations

from node.core.messages import (
    AdminResponse,
    AlterPartition,
    AlterPartitionResponse,
    AnyMessage,
    ControllerRequest,
    Error,
    Heartbeat,
    HeartbeatResponse,
    RegisterBroker,
    RegisterBrokerResponse,
    ReplicaLogInfo,
)


def not_controller(message: ControllerRequest, hint: str) -> AnyMessage | None:
    """The refusal that fits the request, with a hint who to ask; None for what is no request."""
    error = Error.NOT_CONTROLLER
    match message:
        case RegisterBroker():
            return RegisterBrokerResponse(
                corr=message.corr, incarnation=message.incarnation, error=error, leader=hint
            )
        case Heartbeat():
            return HeartbeatResponse(corr=message.corr, error=error, leader=hint)
        case AlterPartition():
            return AlterPartitionResponse(
                corr=message.corr,
                partition=message.partition,
                error=error,
                request_epoch=message.partition_epoch,
                leader=hint,
            )
        case ReplicaLogInfo():
            return None
        case _:
            return AdminResponse(corr=message.corr, error=error, leader=hint)
