import static java.nio.charset.StandardCharsets.UTF_8;

import com.hivemq.client.mqtt.MqttClient;
import com.hivemq.client.mqtt.MqttClientBuilder;
import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.MqttWebSocketConfig;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt3.Mqtt3AsyncClient;
import com.hivemq.client.mqtt.mqtt5.Mqtt5AsyncClient;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** The HiveMQ client: 3.1.1 and 5.0. */
final class HiveMq {
    private HiveMq() {}

    private static MqttClientBuilder builder(Peer.Place place, String name) {
        var builder = MqttClient.builder()
                .identifier(place.topic() + "-" + name)
                .serverHost(place.host())
                .serverPort(place.port());
        return place.framed()
                ? builder.webSocketConfig(MqttWebSocketConfig.builder().serverPath("mqtt").build())
                : builder;
    }

    private static <T> T in(CompletableFuture<T> future) throws Exception {
        return future.get(Peer.PATIENCE_S, TimeUnit.SECONDS);
    }

    static final class Three extends Peer {
        private Mqtt3AsyncClient client;

        @Override
        boolean connect(Place place, String name, boolean clean, String will) throws Exception {
            var builder = builder(place, name).useMqttVersion3();
            if (will != null) {
                builder = builder.willPublish().topic(will).payload("gone".getBytes(UTF_8))
                        .qos(MqttQos.AT_LEAST_ONCE).applyWillPublish();
            }
            client = builder.buildAsync();
            client.publishes(MqttGlobalPublishFilter.ALL, one -> inbox.add(new Message(
                    one.getTopic().toString(), new String(one.getPayloadAsBytes(), UTF_8),
                    one.getQos().getCode(), one.isRetain())));
            return in(client.connectWith().cleanSession(clean).send()).isSessionPresent();
        }

        @Override
        void subscribe(String filter, int qos) throws Exception {
            in(client.subscribeWith().topicFilter(filter).qos(MqttQos.fromCode(qos)).send());
        }

        @Override
        void publish(Message one) throws Exception {
            in(client.publishWith().topic(one.topic()).payload(one.payload().getBytes(UTF_8))
                    .qos(MqttQos.fromCode(one.qos())).retain(one.retain()).send());
        }

        @Override
        void close() throws Exception {
            in(client.disconnect());
        }
    }

    static final class Five extends Peer {
        private Mqtt5AsyncClient client;

        @Override
        boolean connect(Place place, String name, boolean clean, String will) throws Exception {
            var builder = builder(place, name).useMqttVersion5();
            if (will != null) {
                builder = builder.willPublish().topic(will).payload("gone".getBytes(UTF_8))
                        .qos(MqttQos.AT_LEAST_ONCE).applyWillPublish();
            }
            client = builder.buildAsync();
            client.publishes(MqttGlobalPublishFilter.ALL, one -> inbox.add(new Message(
                    one.getTopic().toString(), new String(one.getPayloadAsBytes(), UTF_8),
                    one.getQos().getCode(), one.isRetain())));
            return in(client.connectWith().cleanStart(clean)
                    .sessionExpiryInterval(clean ? 0 : KEPT_S).send()).isSessionPresent();
        }

        @Override
        void subscribe(String filter, int qos) throws Exception {
            in(client.subscribeWith().topicFilter(filter).qos(MqttQos.fromCode(qos)).send());
        }

        @Override
        void publish(Message one) throws Exception {
            in(client.publishWith().topic(one.topic()).payload(one.payload().getBytes(UTF_8))
                    .qos(MqttQos.fromCode(one.qos())).retain(one.retain()).send());
        }

        @Override
        void close() throws Exception {
            in(client.disconnect());
        }
    }
}
