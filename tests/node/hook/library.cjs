// Stands for tardis-dev. What its functions give follows from the request: `count` trades, `failAfter` so many,
// or the `steps` of a live stream.
'use strict';

const { setTimeout: wait } = require('node:timers/promises');

exports.EXCHANGES = ['bitmex', 'deribit', 'binance-futures'];

exports.replayNormalized = async function* (options) {
  for (let index = 0; index < options.count; index += 1) {
    if (index === options.failAfter) throw failure(options);
    if (options.pauseMs) await wait(options.pauseMs);
    if (options.gapAt === index && options.withDisconnectMessages) {
      yield { type: 'disconnect', exchange: options.exchange, localTimestamp: time(index) };
    }
    yield trade(options, index);
  }
  if (options.failAfter === options.count) throw failure(options);
};

exports.streamNormalized = async function* (options) {
  let index = 0;
  for (const step of options.steps) {
    if (step.trades) for (let end = index + step.trades; index < end; index += 1) yield trade(options, index);
    if (step.error) options.onError?.(Object.assign(new Error(step.error), { code: step.code }));
    if (step.waitMs) await wait(step.waitMs);
    if (step.fail) throw new Error(step.fail);
    if (step.disconnect && options.withDisconnectMessages) {
      const { exchange, symbols } = options;
      yield { type: 'disconnect', exchange, localTimestamp: time(index), symbols };
    }
  }
};

exports.combine = async function* (...iterators) {
  // Each is read ahead of what is taken, as the real one does with live streams.
  for (const iterator of iterators) {
    const messages = [];
    let failure;
    try {
      for await (const message of iterator) messages.push(message);
    } catch (error) {
      failure = error;
    }
    yield* messages;
    if (failure) throw failure;
  }
};

function trade({ exchange, symbols }, index) {
  return {
    type: 'trade',
    symbol: symbols[index % symbols.length],
    exchange,
    id: String(index),
    price: index + 0.5,
    amount: 1,
    side: 'buy',
    timestamp: time(index),
    localTimestamp: time(index),
  };
}

function time(index) {
  return new Date(Date.UTC(2024, 0, 1) + index);
}

function failure({ failStatus, failText = 'the data ended' }) {
  if (!failStatus) return new Error(failText);
  const message = `HttpError: status code: ${failStatus}, response text: ${failText}`;
  return Object.assign(new Error(message), { status: failStatus, responseText: failText });
}
