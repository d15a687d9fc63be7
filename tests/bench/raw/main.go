// Writes prepared records to a bus, and prints what it measured as JSON:
//
//	raw redis|nats|kafka ADDRESS RECORDS SECONDS RATE
//
// It writes as fast as the library lets it, or RATE events a second, if that is not 0.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	warmUp = 500 * time.Millisecond
	// What a client gathers before it sends.
	gathered = 5 * time.Millisecond
)

// As many as the sidecar writes at once.
var atOnce = map[string]int{"redis": 1024, "nats": 1024, "kafka": 16384}

type record struct {
	destination, key, payloadCase, dataType, id string

	envelope []byte
}

// write returns when all the records are confirmed.
type write func(context.Context, []record) error

func main() {
	log.SetFlags(0)
	seconds, err := strconv.ParseFloat(os.Args[4], 64)
	if err != nil {
		log.Fatal(err)
	}
	rate, err := strconv.Atoi(os.Args[5])
	if err != nil {
		log.Fatal(err)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], time.Duration(seconds*float64(time.Second)), rate); err != nil {
		log.Fatal(err)
	}
}

func run(bus, address, path string, duration time.Duration, rate int) error {
	records, err := read(path)
	if err != nil {
		return err
	}
	writers := map[string]func(string) (write, error){"redis": toRedis, "nats": toNats, "kafka": toKafka}
	writeTo, err := writers[bus](address)
	if err != nil {
		return err
	}
	runtime.GC()
	source := &source{records: records, run: strconv.FormatInt(time.Now().UnixNano(), 36)}
	var findings map[string]float64
	if rate == 0 {
		findings, err = measure(writeTo, source, atOnce[bus], duration)
	} else {
		findings, err = measureAt(rate, writeTo, source, atOnce[bus], duration)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(findings)
}

// read reads the fields of records, each behind its length.
func read(path string) ([]record, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	buffered := bufio.NewReader(file)
	var records []record
	for {
		var fields [5][]byte
		for index := range fields {
			var length uint32
			if err := binary.Read(buffered, binary.BigEndian, &length); errors.Is(err, io.EOF) && index == 0 {
				return records, nil
			} else if err != nil {
				return nil, err
			}
			fields[index] = make([]byte, length)
			if _, err := io.ReadFull(buffered, fields[index]); err != nil {
				return nil, err
			}
		}
		records = append(records, record{
			destination: string(fields[0]),
			key:         string(fields[1]),
			payloadCase: string(fields[2]),
			dataType:    string(fields[3]),
			envelope:    fields[4],
		})
	}
}

// source repeats the records under ids that differ.
type source struct {
	records []record
	run     string
	number  int
}

func (s *source) next(count int) []record {
	batch := make([]record, count)
	for index := range batch {
		batch[index] = s.records[s.number%len(s.records)]
		batch[index].id = fmt.Sprintf("%s:%d", s.run, s.number)
		s.number++
	}
	return batch
}

func measure(writeTo write, source *source, atOnce int, duration time.Duration) (map[string]float64, error) {
	counted := 0
	var began time.Time
	var cpu time.Duration
	for start := time.Now(); ; {
		if err := writeTo(context.Background(), source.next(atOnce)); err != nil {
			return nil, err
		}
		now := time.Now()
		if began.IsZero() {
			if now.Sub(start) > warmUp {
				began, cpu = now, processorTime()
			}
			continue
		}
		counted += atOnce
		if passed := now.Sub(began); passed > duration {
			used := processorTime() - cpu
			return map[string]float64{
				"rate": float64(counted) / passed.Seconds(),
				"cpu":  float64(used.Microseconds()) / float64(counted),
				"busy": used.Seconds() / passed.Seconds(),
			}, nil
		}
	}
}

// measureAt writes what is due together at once; each part's latency counts from when it was due.
func measureAt(rate int, writeTo write, source *source, atOnce int, duration time.Duration) (map[string]float64, error) {
	each := int(float64(rate) * gathered.Seconds())
	var latencies []time.Duration
	start, cpu, parts := time.Now(), processorTime(), 0
	due := func(part int) time.Time { return start.Add(time.Duration(part) * gathered) }
	for due(parts).Sub(start) < warmUp+duration {
		time.Sleep(time.Until(due(parts + 1)))
		count := min(int(time.Since(start)/gathered)-parts, atOnce/each)
		if err := writeTo(context.Background(), source.next(count*each)); err != nil {
			return nil, err
		}
		now := time.Now()
		for range count {
			parts++
			if due(parts).Sub(start) > warmUp {
				latencies = append(latencies, now.Sub(due(parts)))
			}
		}
	}
	slices.Sort(latencies)
	percentile := func(of int) float64 { return latencies[len(latencies)*of/100].Seconds() * 1000 }
	events := float64(parts * each)
	return map[string]float64{
		"rate": events / time.Since(start).Seconds(),
		"cpu":  float64((processorTime() - cpu).Microseconds()) / events,
		"p50":  percentile(50),
		"p99":  percentile(99),
	}, nil
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func toRedis(address string) (write, error) {
	options, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(options)
	return func(ctx context.Context, batch []record) error {
		pipeline := client.Pipeline()
		for _, each := range batch {
			values := []any{
				"data", each.envelope, "eventId", each.id, "payloadCase", each.payloadCase, "dataType", each.dataType,
			}
			pipeline.XAdd(ctx, &redis.XAddArgs{Stream: each.destination, Values: values})
		}
		_, err := pipeline.Exec(ctx)
		return err
	}, nil
}

func toNats(address string) (write, error) {
	connection, err := nats.Connect(address)
	if err != nil {
		return nil, err
	}
	stream, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		return nil, err
	}
	return func(_ context.Context, batch []record) error {
		for _, each := range batch {
			header := nats.Header{"Nats-Msg-Id": {each.id}, "payloadCase": {each.payloadCase}, "dataType": {each.dataType}}
			message := &nats.Msg{Subject: each.destination, Header: header, Data: each.envelope}
			if _, err := stream.PublishMsgAsync(message); err != nil {
				return err
			}
		}
		<-stream.PublishAsyncComplete()
		return nil
	}, nil
}

func toKafka(address string) (write, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(address),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(1<<20),
	)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, batch []record) error {
		var failed error
		for _, each := range batch {
			headers := []kgo.RecordHeader{
				{Key: "payloadCase", Value: []byte(each.payloadCase)},
				{Key: "dataType", Value: []byte(each.dataType)},
				{Key: "eventId", Value: []byte(each.id)},
			}
			sent := &kgo.Record{Topic: each.destination, Key: []byte(each.key), Value: each.envelope, Headers: headers}
			client.Produce(ctx, sent, func(_ *kgo.Record, err error) {
				if err != nil {
					failed = err
				}
			})
		}
		if err := client.Flush(ctx); err != nil {
			return err
		}
		return failed
	}, nil
}
