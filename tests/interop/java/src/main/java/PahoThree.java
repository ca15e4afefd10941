import static java.nio.charset.StandardCharsets.UTF_8;

import org.eclipse.paho.client.mqttv3.IMqttDeliveryToken;
import org.eclipse.paho.client.mqttv3.MqttAsyncClient;
import org.eclipse.paho.client.mqttv3.MqttCallback;
import org.eclipse.paho.client.mqttv3.MqttConnectOptions;
import org.eclipse.paho.client.mqttv3.MqttMessage;
import org.eclipse.paho.client.mqttv3.persist.MemoryPersistence;

/** Paho Java: 3.1 and 3.1.1. */
final class PahoThree extends Peer implements MqttCallback {
    private static final long PATIENCE_MS = PATIENCE_S * 1_000L;

    private MqttAsyncClient client;

    @Override
    boolean connect(Place place, String name, boolean clean, String will) throws Exception {
        client = new MqttAsyncClient(place.uri(), place.topic() + "-" + name, new MemoryPersistence());
        client.setCallback(this);
        var options = new MqttConnectOptions();
        options.setMqttVersion(place.version());
        options.setCleanSession(clean);
        if (will != null) {
            options.setWill(will, "gone".getBytes(UTF_8), 1, false);
        }
        var token = client.connect(options);
        token.waitForCompletion(PATIENCE_MS);
        return token.getSessionPresent();
    }

    @Override
    void subscribe(String filter, int qos) throws Exception {
        var token = client.subscribe(filter, qos);
        token.waitForCompletion(PATIENCE_MS);
        if (token.getGrantedQos()[0] != qos) {
            throw new IllegalStateException("granted QoS " + token.getGrantedQos()[0]);
        }
    }

    @Override
    void publish(Message one) throws Exception {
        byte[] payload = one.payload().getBytes(UTF_8);
        client.publish(one.topic(), payload, one.qos(), one.retain()).waitForCompletion(PATIENCE_MS);
    }

    @Override
    void close() throws Exception {
        client.disconnect().waitForCompletion(PATIENCE_MS);
        client.close();
    }

    @Override
    public void messageArrived(String topic, MqttMessage one) {
        inbox.add(new Message(topic, new String(one.getPayload(), UTF_8), one.getQos(), one.isRetained()));
    }

    @Override
    public void connectionLost(Throwable cause) {}

    @Override
    public void deliveryComplete(IMqttDeliveryToken token) {}
}
