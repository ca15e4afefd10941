// Paho Go: paho.mqtt.golang for 3.1 and 3.1.1, paho.golang (autopaho) for 5.0, over TCP and
// WebSocket.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"reflect"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/paho"
	mqtt "github.com/eclipse/paho.mqtt.golang"
)

const patience = 10 * time.Second

var (
	host, port, transport, topic string
	version                      int
	opened                       []peer
)

type message struct {
	Topic, Payload string
	QoS            byte
	Retain         bool
}

// A connected client of either library.
type peer interface {
	inbox() chan message
	sessionPresent() bool
	subscribe(filter string, qos byte) error
	publish(topic, payload string, qos byte, retain bool) error
	close() error
}

func address() *url.URL {
	scheme := map[string]string{"tcp": "mqtt", "websocket": "ws", "tls": "mqtts", "wss": "wss"}[transport]
	place := &url.URL{Scheme: scheme, Host: host + ":" + port}
	if strings.HasPrefix(scheme, "ws") {
		place.Path = "/mqtt"
	}
	return place
}

func connect(name string, clean bool, will string) (peer, error) {
	if version == 5 {
		return connect5(name, clean, will)
	}
	return connect3(name, clean, will)
}

func open(name string, clean bool) (peer, error) {
	one, err := connect(name, clean, "")
	if err == nil {
		opened = append(opened, one)
	}
	return one, err
}

// --- paho.mqtt.golang

type peer3 struct {
	client  mqtt.Client
	came    chan message
	present bool
}

func wait(token mqtt.Token) error {
	if !token.WaitTimeout(patience) {
		return errors.New("not within 10 s")
	}
	return token.Error()
}

func connect3(name string, clean bool, will string) (peer, error) {
	one := &peer3{came: make(chan message, 100)}
	options := mqtt.NewClientOptions().AddBroker(address().String()).SetClientID(topic + "-" + name)
	options.SetProtocolVersion(uint(version)).SetCleanSession(clean).SetAutoReconnect(false)
	options.SetConnectRetry(false).SetConnectTimeout(patience)
	options.SetDefaultPublishHandler(func(_ mqtt.Client, m mqtt.Message) {
		one.came <- message{m.Topic(), string(m.Payload()), m.Qos(), m.Retained()}
	})
	if will != "" {
		options.SetWill(will, "gone", 1, false)
	}
	one.client = mqtt.NewClient(options)
	token := one.client.Connect()
	if err := wait(token); err != nil {
		return nil, err
	}
	one.present = token.(*mqtt.ConnectToken).SessionPresent()
	return one, nil
}

func (p *peer3) inbox() chan message  { return p.came }
func (p *peer3) sessionPresent() bool { return p.present }

func (p *peer3) subscribe(filter string, qos byte) error {
	token := p.client.Subscribe(filter, qos, nil)
	if err := wait(token); err != nil {
		return err
	}
	if granted := token.(*mqtt.SubscribeToken).Result()[filter]; granted != qos {
		return fmt.Errorf("granted QoS %d", granted)
	}
	return nil
}

func (p *peer3) publish(topic, payload string, qos byte, retain bool) error {
	return wait(p.client.Publish(topic, qos, retain, payload))
}

func (p *peer3) close() error {
	p.client.Disconnect(250)
	return nil
}

// --- paho.golang

type peer5 struct {
	client  *autopaho.ConnectionManager
	came    chan message
	present bool
}

func inTime() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

func connect5(name string, clean bool, will string) (peer, error) {
	one := &peer5{came: make(chan message, 100)}
	up, failed := make(chan bool, 1), make(chan error, 1)
	settings := autopaho.ClientConfig{
		ServerUrls:                    []*url.URL{address()},
		KeepAlive:                     30,
		CleanStartOnInitialConnection: clean,
		ConnectTimeout:                patience,
		OnConnectionUp: func(_ *autopaho.ConnectionManager, connack *paho.Connack) {
			up <- connack.SessionPresent
		},
		OnConnectError: func(err error) {
			select {
			case failed <- err:
			default:
			}
		},
	}
	if !clean {
		settings.SessionExpiryInterval = 60
	}
	if will != "" {
		settings.WillMessage = &paho.WillMessage{Topic: will, Payload: []byte("gone"), QoS: 1}
	}
	settings.ClientID = topic + "-" + name
	settings.OnPublishReceived = []func(paho.PublishReceived) (bool, error){
		func(received paho.PublishReceived) (bool, error) {
			m := received.Packet
			one.came <- message{m.Topic, string(m.Payload), m.QoS, m.Retain}
			return true, nil
		},
	}
	client, err := autopaho.NewConnection(context.Background(), settings)
	if err != nil {
		return nil, err
	}
	one.client = client
	select {
	case one.present = <-up:
		return one, nil
	case err := <-failed:
		return nil, err
	case <-time.After(patience):
		return nil, errors.New("no connection within 10 s")
	}
}

func (p *peer5) inbox() chan message  { return p.came }
func (p *peer5) sessionPresent() bool { return p.present }

func (p *peer5) subscribe(filter string, qos byte) error {
	ctx, cancel := inTime()
	defer cancel()
	asked := []paho.SubscribeOptions{{Topic: filter, QoS: qos}}
	_, err := p.client.Subscribe(ctx, &paho.Subscribe{Subscriptions: asked})
	return err
}

func (p *peer5) publish(topic, payload string, qos byte, retain bool) error {
	ctx, cancel := inTime()
	defer cancel()
	one := paho.Publish{Topic: topic, Payload: []byte(payload), QoS: qos, Retain: retain}
	_, err := p.client.Publish(ctx, &one)
	return err
}

func (p *peer5) close() error {
	ctx, cancel := inTime()
	defer cancel()
	return p.client.Disconnect(ctx)
}

// --- the checks

func take(one peer, count int) ([]message, error) {
	var found []message
	late := time.After(patience)
	for len(found) < count {
		select {
		case m := <-one.inbox():
			found = append(found, m)
		case <-late:
			return found, fmt.Errorf("%d of %d messages within 10 s", len(found), count)
		}
	}
	return found, nil
}

func expect(one peer, wanted ...message) error {
	found, err := take(one, len(wanted))
	if err == nil && !reflect.DeepEqual(found, wanted) {
		err = fmt.Errorf("wanted %v, got %v", wanted, found)
	}
	return err
}

func numbers(topic string, count int, qos byte) []message {
	var all []message
	for number := range count {
		all = append(all, message{topic, strconv.Itoa(number), qos, false})
	}
	return all
}

func publishAll(one peer, all []message) error {
	for _, m := range all {
		if err := one.publish(m.Topic, m.Payload, m.QoS, m.Retain); err != nil {
			return err
		}
	}
	return nil
}

func checkConnect() error {
	_, err := open("connect", true)
	return err
}

func checkEcho(qos byte) func() error {
	return func() error {
		at := fmt.Sprintf("%s/qos%d", topic, qos)
		one, err := open(fmt.Sprintf("qos%d", qos), true)
		if err != nil {
			return err
		}
		all := numbers(at, 10, qos)
		return errors.Join(one.subscribe(at, qos), publishAll(one, all), expect(one, all...))
	}
}

func checkRetained() error {
	at := topic + "/retained"
	one, err := open("retained", true)
	if err != nil {
		return err
	}
	return errors.Join(
		one.publish(at, "kept", 1, true),
		one.subscribe(at, 1),
		expect(one, message{at, "kept", 1, true}),
		one.publish(at, "", 1, true),
		expect(one, message{at, "", 1, false}),
	)
}

// The program itself, told to connect with a will; it is killed when it has.
func leave() {
	if _, err := connect("leaver", true, topic+"/will"); err != nil {
		os.Exit(1)
	}
	fmt.Println("!")
	select {}
}

func checkWill() error {
	at := topic + "/will"
	watcher, err := open("watcher", true)
	if err != nil {
		return err
	}
	if err := watcher.subscribe(at, 1); err != nil {
		return err
	}
	leaver := exec.Command(os.Args[0], append(os.Args[1:], "leave")...)
	output, err := leaver.StdoutPipe()
	if err != nil {
		return err
	}
	if err := leaver.Start(); err != nil {
		return err
	}
	_, err = output.Read(make([]byte, 1))
	if err := errors.Join(err, leaver.Process.Kill()); err != nil {
		return err
	}
	_ = leaver.Wait() // it was killed: that is no news
	return expect(watcher, message{at, "gone", 1, false})
}

func checkResume() error {
	at := topic + "/resume"
	first, err := connect("resume", false, "")
	if err != nil {
		return err
	}
	if err := errors.Join(first.subscribe(at, 1), first.close()); err != nil {
		return err
	}
	sender, err := open("sender", true)
	if err != nil {
		return err
	}
	all := numbers(at, 3, 1)
	if err := publishAll(sender, all); err != nil {
		return err
	}
	second, err := open("resume", false)
	if err != nil {
		return err
	}
	if second.sessionPresent() != (version > 3) {
		return errors.New("session present is wrong")
	}
	return expect(second, all...)
}

func checkShared() error {
	at := topic + "/shared"
	var members []peer
	for number := range 2 {
		member, err := open(fmt.Sprintf("member%d", number), true)
		if err != nil {
			return err
		}
		if err := member.subscribe("$share/group/"+at, 1); err != nil {
			return err
		}
		members = append(members, member)
	}
	sender, err := open("dealer", true)
	if err != nil {
		return err
	}
	wanted := numbers(at, 10, 1)
	if err := publishAll(sender, wanted); err != nil {
		return err
	}
	var found []message
	for _, member := range members {
		half, err := take(member, 5)
		if err != nil {
			return err
		}
		found = append(found, half...)
	}
	sort.Slice(found, func(a, b int) bool { return found[a].Payload < found[b].Payload })
	if !reflect.DeepEqual(found, wanted) {
		return fmt.Errorf("wanted %v, got %v", wanted, found)
	}
	return nil
}

func say(line map[string]any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

func attempt(name string, check func() error) {
	err := check()
	for len(opened) > 0 {
		last := opened[len(opened)-1]
		opened = opened[:len(opened)-1]
		if closed := last.close(); err == nil {
			err = closed
		}
	}
	if err != nil {
		say(map[string]any{"check": name, "ok": false, "why": err.Error()})
	} else {
		say(map[string]any{"check": name, "ok": true})
	}
}

// release is that of the library which speaks this version.
func release() string {
	library := "github.com/eclipse/paho.mqtt.golang"
	if version == 5 {
		library = "github.com/eclipse/paho.golang"
	}
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == library {
			return module.Version
		}
	}
	return "unknown"
}

func main() {
	host, port, transport, topic = os.Args[1], os.Args[2], os.Args[4], os.Args[5]
	version, _ = strconv.Atoi(os.Args[3])
	if len(os.Args) > 6 {
		leave()
	}
	say(map[string]any{"client": "Paho Go", "version": release()})
	attempt("connect", checkConnect)
	for qos := range 3 {
		attempt(fmt.Sprintf("qos%d", qos), checkEcho(byte(qos)))
	}
	attempt("retained", checkRetained)
	attempt("will", checkWill)
	attempt("resume", checkResume)
	if version == 5 {
		attempt("shared", checkShared)
	}
}
