/** Classifies errors of exchange connections and data sources, where possible. */
import type { ErrorCode } from './response-stream.js';

const STATUS_CODES: ReadonlyMap<number, ErrorCode> = new Map([
  [401, 'source_auth'],
  [403, 'source_auth'],
  [418, 'source_rate_limit'],
  [429, 'source_rate_limit'],
]);
const HANDSHAKE_STATUS = /^Unexpected server response: (\d+)/;
const NOT_CONNECTED =
  /^(ECONN|ENOTFOUND|EAI_|ETIMEDOUT|EHOST|ENET|EPROTO|EPIPE|ERR_TLS|CERT_|UNABLE_TO|SELF_SIGNED|DEPTH_ZERO)/;
const NO_HANDSHAKE = /handshake|before the connection was established/i;
/** An error message of the exchange, often JSON with a status. */
const EXCHANGE_ANSWER = /^Received error message: .*"status":\s*(\d{3})\b/;
const NOT_SENT = /^WebSocket is not open/;

/** How tardis-dev describes that its data source refused a download. */
const FAILED_DOWNLOAD = /\bHttpError: status code: (\d{3})\b/;

/** Classifies a failed response by its description, which is all that a WebSocket client gets. */
export function codeOfFailure(details: string): ErrorCode | undefined {
  const refusal = FAILED_DOWNLOAD.exec(details);
  return refusal ? codeOfStatus(Number(refusal[1])) : undefined;
}

export function codeOfStatus(status: number): ErrorCode | undefined {
  return STATUS_CODES.get(status);
}

/** Classifies an error of a live stream's connection. */
export function codeOfError(error: unknown): ErrorCode | undefined {
  const { message, code, status } = error as Readonly<Record<string, unknown>>;
  const text = typeof message === 'string' ? message : '';
  const refusal = HANDSHAKE_STATUS.exec(text);
  if (refusal) return codeOfStatus(Number(refusal[1])) ?? 'ws_connect';
  const answer = EXCHANGE_ANSWER.exec(text);
  if (answer) return codeOfStatus(Number(answer[1]));
  if (typeof status === 'number') return codeOfStatus(status);
  if (NOT_SENT.test(text)) return 'ws_send';
  return (typeof code === 'string' && NOT_CONNECTED.test(code)) || NO_HANDSHAKE.test(text)
    ? 'ws_connect'
    : undefined;
}
