/**
 * One gRPC stream to the sidecar, and the messages on it.
 *
 * With `channel.ts` the only module that needs gRPC and Protobuf. They are loaded with the first stream: a client
 * that is switched off loads neither.
 */
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import * as grpc from '@grpc/grpc-js';
import type { Channel } from './channel.js';
import type { Failure } from './errors.js';
import {
  FailureKind,
  type Outcome,
  PublishRequestSchema,
  type PublishResponse,
  PublishResponseSchema,
} from './generated/bronze/sidecar/v1/sidecar_pb.js';
import { Origin } from './generated/lakehouse/bronze/v1/normalized_event_pb.js';
import type { Settings } from './options.js';
import type { Credits } from './window.js';

export { shareChannel } from './channel.js';

const METHOD = '/bronze.sidecar.v1.SidecarService/Publish';

/** Statuses that another attempt would only get again. */
const FINAL: ReadonlySet<grpc.status> = new Set([
  grpc.status.INVALID_ARGUMENT,
  grpc.status.UNIMPLEMENTED,
  grpc.status.PERMISSION_DENIED,
  grpc.status.UNAUTHENTICATED,
  grpc.status.FAILED_PRECONDITION,
]);

const ORIGINS = {
  unspecified: Origin.UNSPECIFIED,
  realtime: Origin.REALTIME,
  replay: Origin.REPLAY,
  archive: Origin.ARCHIVE,
} as const;

/** How a stream ended. */
export interface Ending {
  readonly reason: string;
  /** Whether another attempt would only get the same answer. */
  readonly isFinal: boolean;
}

/** What happened to events. */
export interface Done {
  readonly published: number;
  readonly filtered: number;
  readonly failures: readonly Failure[];
}

/** A response of the sidecar. */
export type Response =
  | {
      readonly kind: 'opened';
      readonly sequence: number;
      readonly credits: Credits;
      readonly takesEnd: boolean;
      readonly done: Done;
    }
  | { readonly kind: 'acknowledged'; readonly sequence: number; readonly done: Done }
  | { readonly kind: 'granted'; readonly credits: Credits }
  | { readonly kind: 'unknown' };

/** One attempt: a call, until it ends. */
export class Stream {
  /** Resolves when the stream is over and everything received on it was passed on. */
  readonly ended: Promise<Ending>;
  private readonly call: grpc.ClientDuplexStream<Buffer, Buffer>;
  private isOver = false;

  /** `onRoom` is called when more can be sent after `hasRoom` was false. */
  constructor(channel: Channel, onResponse: (response: Response) => void, onRoom: () => void) {
    this.call = channel.client.makeBidiStreamRequest(METHOD, identity, identity);
    let unreadable = '';
    this.call.on('data', (bytes: Buffer) => {
      try {
        onResponse(decode(bytes));
      } catch (error) {
        unreadable = `The sidecar's answer cannot be read: ${String(error)}.`;
        this.call.cancel();
      }
    });
    this.call.on('drain', onRoom);
    // The status carries the same information.
    this.call.on('error', () => undefined);
    this.ended = new Promise((resolve) => {
      this.call.on('status', ({ code, details }: grpc.StatusObject) => {
        this.isOver = true;
        const reason = code === grpc.status.OK ? '' : `${grpc.status[code]}: ${withoutEmptyNote(details)}`;
        const ending = { reason: unreadable || reason, isFinal: FINAL.has(code) };
        // Data that came before the status may not have been passed on yet.
        setImmediate(() => resolve(ending));
      });
    });
  }

  /** Whether what was sent so far is on the connection, or soon will be. */
  get hasRoom(): boolean {
    return !this.call.writableNeedDrain;
  }

  send(request: Buffer): void {
    if (!this.isOver) this.call.write(request);
  }

  /** Half-closes the stream: nothing more will be sent. */
  finish(): void {
    if (!this.isOver) this.call.end();
  }

  cancel(): void {
    this.call.cancel();
  }
}

/** Encodes the message that opens or resumes the stream. */
export function encodeOpen(settings: Settings, acknowledgedSequence: number): Buffer {
  const { producerId, streamId, source, origin, requestId, sessionId, meta } = settings;
  const request = create(PublishRequestSchema, {
    kind: {
      case: 'open',
      value: {
        producerId,
        acknowledgedSequence: BigInt(acknowledgedSequence),
        context: { streamId, source, origin: ORIGINS[origin], requestId, sessionId, meta: { ...meta } },
      },
    },
  });
  return Buffer.from(toBinary(PublishRequestSchema, request));
}

function decode(bytes: Uint8Array): Response {
  const { kind }: PublishResponse = fromBinary(PublishResponseSchema, bytes);
  switch (kind.case) {
    case 'opened': {
      const { acknowledgedSequence, credits, outcome, takesEnd } = kind.value;
      const sequence = Number(acknowledgedSequence);
      return {
        kind: 'opened',
        sequence,
        credits: readCredits(credits),
        takesEnd,
        done: readOutcome(outcome),
      };
    }
    case 'acknowledgement':
      return {
        kind: 'acknowledged',
        sequence: Number(kind.value.sequence),
        done: readOutcome(kind.value.outcome),
      };
    case 'credits':
      return { kind: 'granted', credits: readCredits(kind.value) };
    default:
      return { kind: 'unknown' };
  }
}

function readCredits(credits: { events: bigint; bytes: bigint; batchBytes: bigint } | undefined): Credits {
  return {
    events: Number(credits?.events ?? 0),
    bytes: Number(credits?.bytes ?? 0),
    batchBytes: Number(credits?.batchBytes ?? 0),
  };
}

function readOutcome(outcome: Outcome | undefined): Done {
  return {
    published: Number(outcome?.published ?? 0),
    filtered: Number(outcome?.filtered ?? 0),
    failures: (outcome?.failures ?? []).map(({ position, kind, reason, backend, level }) => ({
      position: Number(position),
      kind: kind === FailureKind.REJECTED ? 'rejected' : 'failed',
      reason,
      backend,
      ...(level === undefined ? {} : { level }),
    })),
  };
}

/** Removes the empty note that grpc-js appends when an address cannot be resolved. */
function withoutEmptyNote(details: string): string {
  return details.replace(/ Resolution note: $/, '');
}

function identity(bytes: Buffer): Buffer {
  return bytes;
}
